"""Which method wins where: a decision tree from the setting to the best method (L 3.2, Fig. 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rekindle.statistics import Results, StatisticsError, needed

DEPTH, LEAF = 4, 7  # L 3.2


@dataclass(frozen=True)
class Winners:
    """A fitted tree.

    Args:
        features: Names of what it may ask: numbers as they are, words as "name = word".
        settings: How many settings it was fitted on.
        wins: How many of them each method won.
        accuracy: Part of them in which the tree names the winner; always naming the most frequent one is `chance`.
        chance: See `accuracy`.
        text: The tree as lines.
        tree: The scikit-learn classifier.
    """

    features: tuple[str, ...]
    settings: int
    wins: Mapping[str, int]
    accuracy: float
    chance: float
    text: str
    tree: Any

    @property
    def summary(self) -> str:
        """Return who won how often, and how often the tree is right."""
        won = ", ".join(f"{method} {count}" for method, count in self.wins.items())
        text = f"{self.settings} settings, won by: {won}. The tree names {self.accuracy:.0%} of the winners, "
        return f"{text}the most frequent winner alone {self.chance:.0%}."

    def __str__(self) -> str:
        return f"{self.summary}\n{self.text}"


def who_wins(
    results: Results,
    extra: Mapping[str, Mapping[str, float]] | None = None,
    *,
    max_depth: int = DEPTH,
    min_leaf: int = LEAF,
) -> Winners:
    """Fit a decision tree that predicts from a setting which method has the best mean in it.

    Args:
        results: As `collect` gives them; the fields in which settings differ are the features.
        extra: Numbers to use instead of a word: {"data": {"digits": 1198, "mnist": 60000}}.
        max_depth: Questions from the root to a leaf.
        min_leaf: Settings that must be left in a leaf.

    Raises:
        StatisticsError: There is one setting only, or scikit-learn is not installed.
    """
    trees = needed("sklearn.tree")
    if len(results.values) < 2 or not results.fields:
        raise StatisticsError(
            expected="several settings",
            got=f"{len(results.values)}",
            fix="let the grid of the sweep vary more than the methods",
        )
    winners = [results.best(setting) for setting in results.values]
    names, table = features(results, extra or {})
    tree = trees.DecisionTreeClassifier(max_depth=max_depth, min_samples_leaf=min_leaf, random_state=0)
    tree.fit(table, winners)
    counts = {method: winners.count(method) for method in results.methods}
    return Winners(
        features=names,
        settings=len(winners),
        wins=dict(sorted(counts.items(), key=lambda item: -item[1])),
        accuracy=float(tree.score(table, winners)),
        chance=max(counts.values()) / len(winners),
        text=trees.export_text(tree, feature_names=list(names)),
        tree=tree,
    )


def features(results: Results, extra: Mapping[str, Mapping[str, float]]) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Return names and values of the features, one row for each setting: numbers, or one column for each word."""
    names: list[str] = []
    columns: list[list[float]] = []
    for place, field in enumerate(results.fields):
        words = [setting[place] for setting in results.values]
        numbers = _as_numbers(words, extra.get(field, {}))
        if numbers is not None:
            names.append(field)
            columns.append(numbers)
        else:
            for word in dict.fromkeys(words):
                names.append(f"{field} = {word}")
                columns.append([float(other == word) for other in words])
    return tuple(names), np.array(columns).T


def _as_numbers(words: Sequence[str], given: Mapping[str, float]) -> list[float] | None:
    try:
        return [float(given[word] if word in given else word) for word in words]
    except ValueError:
        return None
