"""Weights near zero under gradient descent with weight decay, simulated without a network (Z 6.1, Fig. 4).

The model of Z 6.1: f = A theta_1 ... theta_m + B, loss (f - y)^2 / 2 + lambda |theta|^2 / 2. Two factors are a row
and a column (double), three have a scale between them (triple).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rekindle.metrics.stability import stability, triple_stability

RATE = 0.05
Vector = NDArray[np.float64]


def simulate(start: Vector, gain: float, error: float, rate: float, decay: float, steps: int) -> Vector:
    """Return the weights after each step of gradient descent, `[steps + 1, factors]`; `error` is B - y.

    Example:
        >>> simulate(np.zeros(2), gain=1.0, error=-1.0, rate=0.1, decay=0.0, steps=3)[-1].tolist()
        [0.0, 0.0]
    """
    path = [start]
    for _ in range(steps):
        now = path[-1]
        others = np.array([np.prod(np.delete(now, place)) for place in range(len(now))])
        gradient = (gain * np.prod(now) + error) * gain * others + decay * now
        path.append(now - rate * gradient)
    return np.array(path)


def eigenvalues(seeds: int) -> list[dict[str, Any]]:
    """Return measured rates of growth near zero beside the eigenvalues of the analysis.

    A rate is the logarithm of the growth of the norm over one step, late in a run that starts at 1e-9; the analysis is
    in continuous time, so the eigenvalue e is compared as log(1 + e), the same step in discrete time.
    """
    observations = []
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        for decay in (0.0001, 0.001, 0.005, 0.5):
            gain, error = random.uniform(0.5, 2.0, 2) * random.choice([-1.0, 1.0], 2)
            error *= 0.25 if decay < 0.5 else 0.1
            for factors, name in ((2, "double"), (3, "triple")):
                expected = stability(error, gain, RATE, decay)[1] if factors == 2 else triple_stability(RATE, decay)
                path = simulate(1e-9 * random.standard_normal(factors), gain, error, RATE, decay, 400)
                norms = np.linalg.norm(path[-2:], axis=1)
                rate = float(np.log(norms[1] / norms[0]))
                row = {"condition": f"weight decay {decay}", "method": name, "seed": seed}
                observations.append(
                    {**row, "rate": rate, "eigenvalue": expected, "gap": abs(rate - math.log1p(expected))}
                )
    return observations


def norms_over_time(seeds: int) -> list[dict[str, Any]]:
    """Return the sum of the factors' norms at the end of training, from zero, from 1e-4 and from usual weights.

    The rest of the network is taken to have fitted its targets up to noise: that pairs do not return is then what the
    analysis says of a small |B - y|, and says nothing about pairs that are still needed.
    """
    observations = []
    for seed in range(seeds):
        for decay in (0.0, 0.0001, 0.0005, 0.001, 0.005):
            for factors, kind in ((2, "double"), (3, "triple")):
                for name, size in (("from zero", 0.0), ("from small", 1e-4), ("from usual", 0.5)):
                    random = np.random.default_rng(seed)
                    path = _train(size * random.standard_normal(factors), random, decay)
                    start, end = (float(np.abs(path[place]).sum()) for place in (0, -1))
                    row = {"condition": f"{kind}, weight decay {decay}", "method": name, "seed": seed}
                    observations.append({**row, "norm": end, "growth": end - start})
    return observations


def _train(now: Vector, random: np.random.Generator, decay: float, epochs: int = 60, steps: int = 100) -> Vector:
    """Train on noise around targets that the rest already fits; the rate decays by 0.97 an epoch."""
    path = [now]
    for epoch in range(epochs):
        for _ in range(steps):
            error = random.normal(0.0, 0.5 / 16)  # mean over 256 examples; zero on average: all is fitted
            now = simulate(now, 1.0, error, 10 * RATE * 0.97**epoch, decay, 1)[-1]  # momentum 0.9: ten times the step
        path.append(now)
    return np.array(path)
