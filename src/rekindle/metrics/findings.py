"""Findings: named rules that turn readings into sentences, with the paper behind them and the method that would help.

What is normal depends on the network: a deep ReLU network has dormant units and a low rank before it has learned
anything. So the rules compare with a fresh network of the same class, drawn by its own initialisers and shown the same
data, wherever one can be had. Thresholds are in `THRESHOLDS` and can be changed for a single audit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rekindle.core.errors import SettingsError
from rekindle.metrics.reading import Reading

Severity = Literal["note", "warning", "serious"]
Readings = Mapping[str, Reading]

# What each rule compares with, and from where on it speaks.
THRESHOLDS: dict[str, float] = {
    "dormant_units": 0.25,  # share of a layer's units that are dormant, beyond that of a fresh network
    "frozen_weights": 0.02,  # share of a group's weights that are frozen (double or triple), beyond a fresh network's
    "collapsed_rank": 0.25,  # effective rank of a layer's features over that of a fresh network
    "large_norms": 3.0,  # norm of a weight over the one it is drawn with
    "uneven_spectrum": 20.0,  # deviation from isometry, scale divided out, over that of a fresh weight
    "slow_learner": 0.1,  # how much worse than fresh ones it learns, relative, at the near end of the interval
}
FEWEST = 4  # dormant units more than in a fresh network: fewer are chance in a layer of a few units


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or may be.

    Attributes:
        rule: Name of the rule.
        severity: "note", "warning" or "serious".
        sentence: What was found.
        parts: Layers or groups concerned, worst first.
        value: The worst value.
        threshold: What it was held against.
        source: Paper behind the rule.
        suggestion: Spec of the method that would help.
        advice: How to use it.
    """

    rule: str
    severity: Severity
    sentence: str
    parts: tuple[str, ...]
    value: float
    threshold: float
    source: str
    suggestion: str
    advice: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def find(readings: Readings, fresh: Readings, thresholds: Mapping[str, float] | None = None) -> tuple[Finding, ...]:
    """Return what the rules find, serious first.

    Args:
        readings: Of the network.
        fresh: Of a fresh network of the same class, as far as there is one.
        thresholds: Instead of those in `THRESHOLDS`, by rule.

    Raises:
        SettingsError: A threshold for a rule that does not exist.
    """
    limits = THRESHOLDS | dict(thresholds or {})
    unknown = sorted(set(limits) - set(THRESHOLDS))
    if unknown:
        raise SettingsError(
            expected=f"thresholds of the rules {', '.join(THRESHOLDS)}", got=unknown[0], fix="correct the name"
        )
    found = [finding for name, rule in RULES.items() if (finding := rule(readings, fresh, limits[name])) is not None]
    order: dict[str, int] = {"serious": 0, "warning": 1, "note": 2}
    return tuple(sorted(found, key=lambda finding: order[finding.severity]))


def dormant_units(readings: Readings, fresh: Readings, limit: float) -> Finding | None:
    """Units that hardly respond to any input, beyond what a fresh network has."""
    worse = _beyond(readings.get("dormant"), fresh.get("dormant"))
    sizes = {name: len(scores) for name, scores in _detail(readings.get("dormant"), "scores").items()}
    worse = {name: value for name, value in worse.items() if value * sizes.get(name, FEWEST) >= FEWEST}
    return _finding(
        "dormant_units",
        {name: value for name, value in worse.items() if value > limit},
        limit,
        serious=0.5,
        sentence="{n} with units that no longer respond: in {worst} {value:.0%} of the units more than in "
        "a fresh network are dormant",
        source="Sokar et al. 2023, The Dormant Neuron Phenomenon in Deep Reinforcement Learning; FIRE: Theorem 4",
        suggestion="redo",
        advice="run rk.Keeper(model, optimizer, 'redo') while you go on training, or rk.fire_ once before",
    )


def frozen_weights(readings: Readings, fresh: Readings, limit: float) -> Finding | None:
    """Weights whose own and neighbouring factors are near zero, so that no gradient moves them."""
    worse = _beyond(readings.get("frozen"), fresh.get("frozen"))
    return _finding(
        "frozen_weights",
        {name: value for name, value in worse.items() if value > limit},
        limit,
        serious=0.2,
        sentence="{n} with weights that gradients cannot move: in {worst} {value:.0%} of them are "
        "frozen, because the factors next to them are near zero too",
        source="Mutually frozen weights: 6.1 to 6.5",
        suggestion="dirac_reset",
        advice="apply rk.dirac_reset_ before the new data; lower weight decay afterwards",
    )


def collapsed_rank(readings: Readings, fresh: Readings, limit: float) -> Finding | None:
    """Features that use few directions, compared with a fresh network on the same data."""
    ratio = _over(readings.get("effective_rank"), fresh.get("effective_rank"))
    return _finding(
        "collapsed_rank",
        {name: value for name, value in ratio.items() if value < limit},
        limit,
        serious=0.1,
        lower=True,
        sentence="{n} with features that use few directions: in {worst} the effective rank is {value:.0%} of that "
        "of a fresh network on the same data",
        source="Kumar et al. 2021, Implicit Under-Parameterization; FIRE: Theorem 3",
        suggestion="fire",
        advice="apply rk.fire_ before the new data; a low rank may also mean that the task is simple",
    )


def large_norms(readings: Readings, fresh: Readings, limit: float) -> Finding | None:
    """Weights that have grown far beyond the size they were drawn with."""
    ratio = _over(readings.get("weight_norm"), fresh.get("weight_norm"))
    return _finding(
        "large_norms",
        {name: value for name, value in ratio.items() if value > limit},
        limit,
        serious=10.0,
        sentence="{n} that have grown: {worst} has {value:.1f} times the norm that it was drawn with",
        source="Soft Weight Rescaling: 1, 3; Lyle et al. 2024",
        suggestion="rescale",
        advice="apply rk.rescale_ once, and keep 'soft_rescale' in a Keeper while you train on",
    )


def uneven_spectrum(readings: Readings, fresh: Readings, limit: float) -> Finding | None:
    """Weight matrices with a few large singular values and many small ones, compared with fresh ones."""
    now, then = (_detail(source.get("dfi"), "scale_free") for source in (readings, fresh))
    ratio = {name: value / max(then[name], 1e-3) for name, value in now.items() if name in then}
    return _finding(
        "uneven_spectrum",
        {name: value for name, value in ratio.items() if value > limit},
        limit,
        serious=100.0,
        sentence="{n} that stretch few directions and squeeze the others: {worst} deviates from an isometry "
        "{value:.1f} times as much as a fresh one",
        source="FIRE: 3.2, Theorems 2 to 4",
        suggestion="fire",
        advice="apply rk.fire_ before the new data",
    )


def slow_learner(readings: Readings, fresh: Readings, limit: float) -> Finding | None:
    """A network that learns worse than fresh ones of its class: the question itself."""
    reading = readings.get("trainability")
    if reading is None:
        return None
    low = float(reading.details.get("low", reading.summary))
    return _finding(
        "slow_learner",
        {"model": reading.summary} if low > limit else {},
        limit,
        serious=0.5,
        sentence="it learns worse than fresh networks of its class: {value:.0%} more loss over the same short training",
        source="Ash and Adams 2020, On Warm-Starting Neural Network Training; FIRE: 4.1",
        suggestion="shrink_perturb",
        advice="apply rk.shrink_perturb_ (or rk.fire_) before the new data, and compare with a fresh start",
    )


RULES: dict[str, Callable[[Readings, Readings, float], Finding | None]] = {
    "slow_learner": slow_learner,
    "dormant_units": dormant_units,
    "frozen_weights": frozen_weights,
    "collapsed_rank": collapsed_rank,
    "large_norms": large_norms,
    "uneven_spectrum": uneven_spectrum,
}


def _finding(
    rule: str,
    parts: Mapping[str, float],
    limit: float,
    *,
    serious: float,
    sentence: str,
    lower: bool = False,
    **said: str,
) -> Finding | None:
    if not parts:
        return None
    order = sorted(parts, key=lambda name: parts[name], reverse=not lower)
    worst = parts[order[0]]
    grave = worst < serious if lower else worst > serious
    words = sentence.format(n=f"{len(parts)} layer{'s' * (len(parts) > 1)}", worst=order[0], value=worst)
    return Finding(rule, "serious" if grave else "warning", words, tuple(order), worst, limit, **said)


def _beyond(reading: Reading | None, fresh: Reading | None) -> dict[str, float]:
    """Return by how much each part exceeds that of a fresh network."""
    if reading is None:
        return {}
    usual = fresh.parts if fresh is not None else {}
    return {name: value - usual.get(name, 0.0) for name, value in reading.parts.items()}


def _over(reading: Reading | None, fresh: Reading | None) -> dict[str, float]:
    """Return each part over that of a fresh network."""
    if reading is None or fresh is None:
        return {}
    usual = fresh.parts
    return {name: value / usual[name] for name, value in reading.parts.items() if usual.get(name, 0.0) > 0}


def _detail(reading: Reading | None, name: str) -> dict[str, Any]:
    return dict(reading.details.get(name, {})) if reading is not None else {}
