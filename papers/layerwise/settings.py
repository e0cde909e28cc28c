"""Results by setting (data, network, kind): Table 2 as printed, and what Table 3 and Fig. 2 make of such numbers."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from papers.experiment import CellName, Experiment, Measure, Published, Row, Study
from papers.layerwise import PAPER
from papers.layerwise.decision_tree import who_wins
from papers.layerwise.synthetic import MASKED, PERCENT, SIX
from papers.rules import Larger, Observations
from rekindle.lab.report import significance_table
from rekindle.statistics import PairedTest, Results, compare_all, holm

NETWORKS = ("scnn", "vgg16", "mobile", "resnet")  # as Table 2 has them
KINDS = {"plain": ("no", "0"), "augmented": ("yes", "0"), "augmented with dropout": ("yes", "0.25")}
IMAGE_SETS = {  # Table 4: training images, classes
    "oxford_pets": (3680, 37),
    "stanford_dogs": (12000, 120),
    "stanford_cars": (8144, 196),
    "caltech101": (3060, 101),
    "cassava": (5656, 4),
    "birds2010": (3000, 200),
}
SMALL_SETS = {"cifar10": (1000, 10), "fashion_mnist": (300, 10), "mnist": (300, 10)}  # of the reduced studies
SIZES = {**IMAGE_SETS, **SMALL_SETS}
OTHERS = tuple(name for name in SIX if name != "LW")
FEATURES = ("training images", "classes", "network", "augmentation", "dropout")  # L 3.2
FEWEST = 6  # settings below which no two-sided sign test can be significant


def condition(data: str, network: str, kind: str) -> str:
    """Return the name of a setting."""
    return f"{data}, {network}, {kind}"


def table_2() -> dict[CellName, Published]:
    """Return Table 2 as printed: 72 settings, six methods."""
    with (Path(__file__).parent / "table_2.csv").open(encoding="utf-8") as file:
        return {
            (condition(line["data"], line["network"], line["kind"]), method): Published(
                float(line[method]), float(line[f"{method} deviation"])
            )
            for line in csv.DictReader(file)
            for method in SIX
        }


def printed(seeds: int) -> list[Row]:
    """Return the printed means as observations, and whether each is the best of its setting."""
    table = table_2()
    best: dict[str, float] = {}
    for (place, _), number in table.items():
        best[place] = max(number.mean, best.get(place, 0.0))
    return [
        {
            "condition": place,
            "method": method,
            "seed": 0,
            "accuracy": number.mean,
            "best": float(number.mean == best[place]),
        }
        for (place, method), number in table.items()
    ]


def by_setting(observations: Observations, network: str | None = None) -> Results:
    """Return accuracies by the features of a setting that the tree may use, of one network or of all."""
    values: dict[tuple[str, ...], dict[str, dict[int, float]]] = {}
    for one in observations:
        data, used, kind = str(one["condition"]).split(", ")
        if network in (None, used):
            setting = (data, str(SIZES[data][1]), used, *KINDS[kind])
            values.setdefault(setting, {}).setdefault(str(one["method"]), {})[int(one["seed"])] = one["accuracy"]
    return Results("accuracy", FEATURES, values)


def stars(observations: Observations) -> str:
    """Return Table 3 as Markdown: a matrix for each network of which there are enough settings, and one for all."""
    of_each = {name: by_setting(observations, name) for name in NETWORKS}
    enough = {name: results for name, results in of_each.items() if len(results.values) >= FEWEST}
    found = {name: _compared(results) for name, results in enough.items()}
    corrected = iter(holm([test.p for tests in found.values() for test in tests]))
    joint = {name: [replace(test, p_holm=next(corrected)) for test in tests] for name, tests in found.items()}
    whole = by_setting(observations)
    parts = [(name, len(enough[name].values), tests) for name, tests in joint.items()]
    parts.append(("All networks", len(whole.values), _compared(whole)))
    legend = (
        "\\*: the column's method is better than the row's by the exact binomial test over settings (two-sided, 5%); "
        "∘: also after Holm's correction, for all networks together (in the last matrix for its own)."
    )
    return "\n\n".join([legend, *(_titled(name, count, tests) for name, count, tests in parts)])


def tree(observations: Observations) -> str:
    """Return Fig. 2 as Markdown: who won how often, and the tree."""
    sizes = {name: float(images) for name, (images, _) in SIZES.items()}
    found = who_wins(by_setting(observations), {"training images": sizes})
    return f"{found.summary}\n\n```text\n{found.text.rstrip()}\n```"


def stars_and_tree(observations: Observations) -> str:
    """Return Table 3 and Fig. 2 as Markdown."""
    return f"{stars(observations)}\n\n{tree(observations)}"


def _compared(results: Results) -> list[PairedTest]:
    return compare_all(results, test="sign", per="setting", intervals=False)


def _titled(name: str, settings: int, tests: Sequence[PairedTest]) -> str:
    return f"{name}, {settings} settings:\n\n{significance_table(tests, SIX).rstrip()}"


def of_network(network: str) -> tuple[str, ...]:
    """Return the names of a network's settings in Table 2."""
    return tuple(condition(data, network, kind) for kind in KINDS for data in IMAGE_SETS)


as_printed = Experiment(
    "layerwise-table-3-printed",
    PAPER,
    "Table 3 and Fig. 2, from the printed numbers of Table 2",
    "Only LW beats the baseline with every network; LW beats the other methods with all networks but resnet50, where "
    "those other than FC beat the baseline; FC beats WELS, WELSR and DSD; LW wins most settings, with vgg16 FC.",
    measures=(PERCENT, Measure("best", "best")),
    paper_study=Study(compute=printed, seeds=1, minutes=1),
    rules=(
        *(
            Larger(f"LW beats the baseline with {name}", "LW", ("BL",), conditions=of_network(name), by_condition=True)
            for name in NETWORKS
        ),
        *(
            Larger(
                f"LW beats the other methods with {name}",
                "LW",
                OTHERS[1:],
                conditions=of_network(name),
                by_condition=True,
            )
            for name in NETWORKS[:3]
        ),
        *(
            Larger(
                f"{method} beats the baseline with resnet",
                method,
                ("BL",),
                conditions=of_network("resnet"),
                by_condition=True,
            )
            for method in MASKED
        ),
        Larger("FC beats WELSR, DSD and WELS", "FC", tuple(MASKED), by_condition=True),
        Larger("LW is best in more settings than each other method", "LW", OTHERS, "best", by_condition=True),
        Larger(
            "with vgg16 FC is best in more settings than each other method",
            "FC",
            tuple(name for name in SIX if name != "FC"),
            "best",
            conditions=of_network("vgg16"),
            by_condition=True,
        ),
    ),
    notes=(
        "Nothing is trained: our exact binomial test, Holm's correction and tree are put on the 432 means of Table 2. "
        "So this tests our statistics, and the paper's text against its own table.",
        "Table 3 is a matrix of stars: it has no numbers. In our copy its columns are displaced but for those of "
        "vgg16, with which the two-sided test and a correction over all four networks fit best.",
        "The rules are the sentences of section 3; they were written with the paper's table in view.",
    ),
    extra=stars_and_tree,
)
