"""Findings: named rules that turn readings into sentences, with the paper behind them and the method that would help.

What is normal depends on the network: a deep ReLU network has dormant units and a low rank before it has learned
anything. So the rules compare with a fresh network of the same class, drawn by its own initializers and shown the same
data, wherever one can be had. Their thresholds can be changed for a single audit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rekindle.errors import SettingsError
from rekindle.metrics.reading import Reading

Severity = Literal["note", "warning", "serious"]
Readings = Mapping[str, Reading]
Values = Mapping[str, float]
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


@dataclass(frozen=True)
class FindingRule:
    """One kind of finding.

    Args:
        compare: Maps the readings of the network and of a fresh one to a value for each part.
        threshold: From where on it speaks.
        serious: From where on it is more than a warning.
        sentence: What is said of {n} parts, of which {worst} has {value}.
        source: Paper behind the rule.
        suggestion: Spec of the method that would help.
        advice: How to use it.
        lower: Low values are the bad ones.
        held: As `compare`: what is held against the threshold, if not the value that is told.
    """

    compare: Callable[[Readings, Readings], Values]
    threshold: float
    serious: float
    sentence: str
    source: str
    suggestion: str
    advice: str
    lower: bool = False
    held: Callable[[Readings, Readings], Values] | None = None

    def find(self, name: str, readings: Readings, fresh: Readings, limit: float) -> Finding | None:
        """Return the finding, if there is one."""
        values = self.compare(readings, fresh)
        held = values if self.held is None else self.held(readings, fresh)
        parts = [part for part in values if self._beyond(held[part], limit)]
        if not parts:
            return None
        parts.sort(key=values.__getitem__, reverse=not self.lower)
        worst = values[parts[0]]
        told = f"{len(parts)} layer{'s' * (len(parts) > 1)}"
        return Finding(
            rule=name,
            severity="serious" if self._beyond(worst, self.serious) else "warning",
            sentence=self.sentence.format(n=told, worst=parts[0], value=worst),
            parts=tuple(parts),
            value=worst,
            threshold=limit,
            source=self.source,
            suggestion=self.suggestion,
            advice=self.advice,
        )

    def _beyond(self, value: float, limit: float) -> bool:
        return value < limit if self.lower else value > limit


def find(readings: Readings, fresh: Readings, thresholds: Mapping[str, float] | None = None) -> tuple[Finding, ...]:
    """Return what the rules find, serious first.

    Args:
        readings: Of the network.
        fresh: Of a fresh network of the same class, as far as there is one.
        thresholds: Instead of those of `RULES`, by rule.

    Raises:
        SettingsError: A threshold for a rule that does not exist.
    """
    limits = {name: rule.threshold for name, rule in RULES.items()} | dict(thresholds or {})
    unknown = sorted(set(limits) - set(RULES))
    if unknown:
        raise SettingsError(
            expected=f"thresholds of the rules {', '.join(RULES)}", got=unknown[0], fix="correct the name"
        )
    every = [rule.find(name, readings, fresh, limits[name]) for name, rule in RULES.items()]
    found = [finding for finding in every if finding is not None]
    order: dict[str, int] = {"serious": 0, "warning": 1, "note": 2}
    return tuple(sorted(found, key=lambda finding: order[finding.severity]))


def _dormant(readings: Readings, fresh: Readings) -> Values:
    """Return the share of units that hardly respond to any input, beyond that of a fresh network."""
    sizes = {name: len(scores) for name, scores in _detail(readings.get("dormant"), "scores").items()}
    worse = _exceeding(readings.get("dormant"), fresh.get("dormant"))
    return {name: value for name, value in worse.items() if value * sizes.get(name, FEWEST) >= FEWEST}


def _uneven(readings: Readings, fresh: Readings) -> Values:
    """Return the deviation of weights from an isometry, scale divided out, over that of fresh ones."""
    now, then = (_detail(source.get("dfi"), "scale_free") for source in (readings, fresh))
    return {name: value / max(then[name], 1e-3) for name, value in now.items() if name in then}


def _slowness(readings: Readings, fresh: Readings) -> Values:
    """Return how much worse than fresh ones the network learns, relative."""
    reading = readings.get("trainability")
    return {} if reading is None else {"model": reading.summary}


def _slowness_at_least(readings: Readings, fresh: Readings) -> Values:
    """Return the same at the near end of its interval."""
    reading = readings.get("trainability")
    return {} if reading is None else {"model": float(reading.details.get("low", reading.summary))}


def _exceeding(reading: Reading | None, fresh: Reading | None) -> dict[str, float]:
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


RULES = {
    # The question itself.
    "slow_learner": FindingRule(
        _slowness,
        held=_slowness_at_least,
        threshold=0.1,
        serious=0.5,
        sentence="it learns worse than fresh networks of its class: {value:.0%} more loss over the same short training",
        source="Ash and Adams 2020, On Warm-Starting Neural Network Training; FIRE: 4.1",
        suggestion="shrink_perturb",
        advice="apply rk.shrink_perturb_ (or rk.fire_) before the new data, and compare with a fresh start",
    ),
    "dormant_units": FindingRule(
        _dormant,
        threshold=0.25,
        serious=0.5,
        sentence="{n} with units that no longer respond: in {worst} {value:.0%} of the units more than in "
        "a fresh network are dormant",
        source="Sokar et al. 2023, The Dormant Neuron Phenomenon in Deep Reinforcement Learning; FIRE: Theorem 4",
        suggestion="redo",
        advice="run rk.Keeper(model, optimizer, 'redo') while you go on training, or rk.fire_ once before",
    ),
    # Double or triple: the share of a group's weights.
    "frozen_weights": FindingRule(
        lambda readings, fresh: _exceeding(readings.get("frozen"), fresh.get("frozen")),
        threshold=0.02,
        serious=0.2,
        sentence="{n} with weights that gradients cannot move: in {worst} {value:.0%} of them are "
        "frozen, because the factors next to them are near zero too",
        source="Mutually frozen weights: 6.1 to 6.5",
        suggestion="dirac_reset",
        advice="apply rk.dirac_reset_ before the new data; lower weight decay afterwards",
    ),
    "collapsed_rank": FindingRule(
        lambda readings, fresh: _over(readings.get("effective_rank"), fresh.get("effective_rank")),
        threshold=0.25,
        serious=0.1,
        lower=True,
        sentence="{n} with features that use few directions: in {worst} the effective rank is {value:.0%} of that "
        "of a fresh network on the same data",
        source="Kumar et al. 2021, Implicit Under-Parameterization; FIRE: Theorem 3",
        suggestion="fire",
        advice="apply rk.fire_ before the new data; a low rank may also mean that the task is simple",
    ),
    "large_norms": FindingRule(
        lambda readings, fresh: _over(readings.get("weight_norm"), fresh.get("weight_norm")),
        threshold=3.0,
        serious=10.0,
        sentence="{n} that have grown: {worst} has {value:.1f} times the norm that it was drawn with",
        source="Soft Weight Rescaling: 1, 3; Lyle et al. 2024",
        suggestion="rescale",
        advice="apply rk.rescale_ once, and keep 'soft_rescale' in a Keeper while you train on",
    ),
    "uneven_spectrum": FindingRule(
        _uneven,
        threshold=20.0,
        serious=100.0,
        sentence="{n} that stretch few directions and squeeze the others: {worst} deviates from an isometry "
        "{value:.1f} times as much as a fresh one",
        source="FIRE: 3.2, Theorems 2 to 4",
        suggestion="fire",
        advice="apply rk.fire_ before the new data",
    ),
}
