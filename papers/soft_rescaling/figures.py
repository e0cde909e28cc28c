"""Soft weight rescaling: Figs. 1 to 6."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from papers.experiment import Experiment, Fields, Measure, Study, cells
from papers.rules import Larger, Numbers, Within
from papers.soft_rescaling import PAPER
from papers.soft_rescaling.tables import COLUMNS, best_of
from rekindle.lab.runs import presets

FIGURE = "A figure: our copy has no numbers."
GARBLED = (
    "Tables 2 and 3 (best values here) are mostly unreadable in our copy. Taken from them where they can be read; else "
    "the values of Table 4, and 0.8 for S&P."
)

NETWORK_OF_FIGURE_1 = (
    "Not stated: the network (the CNN and the MLP of Fig. 5 both are of the paper's; an experiment each), and by how "
    "much weights are scaled (here 0.25 to 1 of the way to their initial norm)."
)

_CIFAR: Fields = {"data": "cifar10:size=16", "sample_fraction": 0.1}
STRENGTHS = ("0.25", "0.5", "0.75", "1")
_SCALED = {
    **{f"proportional, {part}": f"rescale:strength={part}" for part in STRENGTHS},
    **{f"not proportional, {part}": f"rescale:strength={part},proportional=false" for part in STRENGTHS},
    "not scaled": "none",
}
_BEFORE_AFTER = (
    Measure("best accuracy afterwards", at="best"),
    Measure("rise over the best before", at="rise"),
    Measure("change right after", at="gap"),
)


def _scaled(column: str, before: int = 100, after: int = 50, each: int = 1, **other: Any) -> Study:
    path = f"warm_start:fraction=1,before={before},after={after}"
    base = {
        **presets.RUNS[f"rescaling.generalization.{column}"],
        "data": "cifar10",
        "protocol": path,
        "evaluate_each": each,
    }
    network = "MLP" if column == "mnist" else "CNN"
    return Study(cells({**base, **other}, {f"CIFAR-10 ({network})": {}}, _SCALED), seeds=5)


figure_1 = Experiment(
    "soft-rescaling-fig-1",
    PAPER,
    "Fig. 1",
    "Scaling in proportion keeps test accuracy exactly, scaling weights alone does not; both help further training.",
    measures=_BEFORE_AFTER,
    paper_study=_scaled("cifar10"),
    cpu_study=replace(
        _scaled("cifar10", 40, 20, 2, data="cifar10:size=16", sample_fraction=0.2, batch_size=64),
        minutes=5,
        reduced="10,000 images of 16x16, batches of 64, 40 and 20 epochs, tested after every second",
    ),
    rules=(
        Numbers("best accuracy afterwards"),
        *(
            Within(
                f"in proportion, {part} of the way: the same accuracy",
                f"proportional, {part}",
                -1e-3,
                1e-3,
                measure="change right after",
            )
            for part in STRENGTHS
        ),
        Within("not in proportion: accuracy is lost", "not proportional, 1", high=-1e-3, measure="change right after"),
        Larger(
            "not in proportion: the more is lost, the further",
            "not proportional, 0.25",
            ("not proportional, 1",),
            "change right after",
        ),
        *(
            Within(f"{name}: above the best accuracy before", name, low=0.0, measure="rise over the best before")
            for name in tuple(_SCALED)[:-1]
        ),
        Larger(
            "scaling helps more than going on",
            "proportional, 1",
            ("not scaled",),
            "best accuracy afterwards",
        ),
    ),
    notes=(
        FIGURE,
        NETWORK_OF_FIGURE_1,
        "Run before at the initial norm alone, with 5,000 images in 855 steps, too few to overfit: in proportion no "
        "prediction changed, weights alone lost 15.7 points, and that scaling beats going on was not decided. Those "
        "rows are in the history of this file. The paper's claim of an accuracy above the best before was not tested.",
    ),
)
figure_1_mlp = replace(
    figure_1,
    name="soft-rescaling-fig-1-mlp",
    where="Fig. 1, MLP",
    paper_study=replace(_scaled("mnist"), minutes=46),
    cpu_study=None,
    notes=(
        FIGURE,
        NETWORK_OF_FIGURE_1,
        "Written after the run: accuracy is the same to the last digit. The gain over the best accuracy before does "
        "not hold for all scalings, as the paper has it: only from the initial norm itself does training pass it, by "
        "0.6 (in proportion, not decided) and 1.1 points (not in proportion). This network is best early (seeds 0 and "
        "1: after 14 and 8 of 100 epochs) and some 5 points lower in the end, which small scalings do not bring back. "
        "Every scaling has a higher mean than going on.",
    ),
)
PATHS = {
    "warm start": "warm_start:fraction=0.5,before={epochs},after={epochs}",
    "full access": "continual:chunks=10,access=full,epochs={epochs}",
    "limited access": "continual:chunks=10,access=limited,epochs={epochs}",
}
# Values that can be read in our copy of Tables 2 and 3; they override those of Table 4.
READ: dict[tuple[str, str], dict[str, str]] = {
    ("mnist", "full access"): {"S&P": "shrink_perturb:shrink=0.6", "L2 Init": "l2_init:strength=1e-4,form=half"},
    ("cifar100_bn", "warm start"): {"SWR": "soft_rescale:strength_features=1e-4,strength_classifier=1"},
    ("cifar100_bn", "limited access"): {"SWR": "soft_rescale:strength_features=1e-1,strength_classifier=1e-2"},
    ("tiny_imagenet", "limited access"): {"S&P": "shrink_perturb:shrink=0.4"},
}


def _curve_methods(column: str, path: str) -> dict[str, str]:
    layers = "1" if column == "mnist" else "all"
    resets = {"S&P": "shrink_perturb:shrink=0.8", "head reset": f"head_reset:layers={layers}"}
    return {**best_of(column), **resets, "from scratch": "fresh", **READ.get((column, path), {})}


def _curves(column: str, path: str, epochs: int, each: int) -> Study:
    base = {**presets.RUNS[f"rescaling.generalization.{column}"], "evaluate_each": each}
    fields = {"protocol": PATHS[path].format(epochs=epochs)}
    seeds = 3 if column == "tiny_imagenet" else 5
    return Study(
        cells({**base, **fields}, {f"{COLUMNS[column]}, {path}": {}}, _curve_methods(column, path)), seeds=seeds
    )


def _joined(*studies: Study) -> Study:
    return Study(tuple(c for study in studies for c in study.cells), seeds=5)


CURVES = (Measure(), Measure("mean over stages", at="ends"), Measure("change at the last boundary", at="gap"))
OTHERS = ("vanilla", "L2", "L2 Init", "S&P", "head reset")
# Network -> columns of the figure, and the column whose settings the reduction takes; both reductions on CIFAR-10.
SHOWN = {"CNN": (("cifar10", "cifar100", "tiny_imagenet"), "cifar10"), "CNN-BN": (("cifar100_bn",), "cifar100_bn")}
AGAIN = (
    "Run before with batches of 256 and 5,000 images, which left {steps} steps in all: too few for methods that change "
    "weights by a thousandth a step. Those rows are in the history of this file; the reduction was given smaller "
    "batches{more} for that reason, and not for its verdicts."
)

_ABOVE_GOING_ON = Larger("SWR is better than going on", "SWR", ("vanilla",))
_BEST_OF_ALL = Larger("SWR is better than all others", "SWR", OTHERS)
# Figure -> path, claim, rules, and the reduction: fraction of CIFAR-10 and epochs of a stage.
DRAWN: dict[str, tuple[str, str, tuple[Larger, ...], float, int]] = {
    "Fig. 2": (
        "warm start",
        "After a warm start SWR reaches an accuracy comparable to or better than all other methods.",
        (Larger("the warm start costs accuracy", "from scratch", ("vanilla",)), _ABOVE_GOING_ON, _BEST_OF_ALL),
        0.2,
        40,
    ),
    "Fig. 3": (
        "full access",
        "With data arriving in ten chunks that stay, regularized networks improve all the way; SWR among the best.",
        (_ABOVE_GOING_ON, _BEST_OF_ALL),
        0.1,
        15,
    ),
    "Fig. 4": (
        "limited access",
        "With only the newest chunk SWR loses least at the change of chunks.",
        (
            _ABOVE_GOING_ON,
            Larger("S&P drops where SWR does not", "SWR", ("S&P", "head reset"), "change at the last boundary"),
        ),
        0.1,
        60,
    ),
}


def _figure(where: str, network: str, minutes: float, *notes: str) -> Experiment:
    """Return a figure for one network: the two networks have different settings in Tables 2 to 4."""
    path, claim, rules, part, epochs = DRAWN[where]
    columns, like = SHOWN[network]
    fields = {**_CIFAR, "batch_size": 64, "sample_fraction": part}
    methods = {c.method: {**c.fields, **fields} for c in _curves(like, path, epochs, epochs).cells}
    small = Study(
        cells(fields, {f"CIFAR-10 ({network}), {path}": {}}, methods),
        seeds=5,
        minutes=minutes,
        reduced=f"CIFAR-10 and the {network} alone, {round(50_000 * part):,} images of 16x16, batches of 64, "
        f"{epochs} epochs a stage",
    )
    title = where if network == "CNN" else f"{where}, {network}"
    return Experiment(
        "soft-rescaling-" + title.lower().replace(". ", "-").replace(", ", "-"),
        PAPER,
        title,
        claim,
        measures=CURVES,
        paper_study=_joined(*(_curves(column, path, 100, 10) for column in columns)),
        cpu_study=small,
        rules=(Numbers(), *rules),
        notes=(FIGURE, GARBLED, *notes),
    )


FIGURES = (
    _figure("Fig. 2", "CNN", 19, AGAIN.format(steps="1,120", more=" and twice the images")),
    _figure("Fig. 3", "CNN", 16),
    _figure("Fig. 4", "CNN", 11, AGAIN.format(steps="600", more="")),
    _figure("Fig. 2", "CNN-BN", 24),
    _figure(
        "Fig. 3",
        "CNN-BN",
        16,
        "Written after the run: S&P and starting afresh end five points above all that go on; SWR is among the latter, "
        "0.1 below plain training. Its strengths are those printed in Table 4 for CIFAR-100.",
    ),
    _figure(
        "Fig. 4",
        "CNN-BN",
        12,
        "Written after the run: SWR keeps its accuracy at the change of chunks, and ends 2.1 points below going on. "
        "Its strengths are those printed for CIFAR-100, 0.1 a step before the classifier; for 500 images a chunk they "
        "may be too much. They were not searched for.",
    ),
)


def _mnist(path: str, minutes: float, *notes: str) -> Experiment:
    return Experiment(
        f"soft-rescaling-mnist-{path.replace(' ', '-')}",
        PAPER,
        f"Fig. 6 and App. F, MNIST (MLP), {path}",
        "On MNIST SWR reaches an accuracy comparable to or better than the others.",
        measures=CURVES,
        paper_study=replace(_curves("mnist", path, 100, 10), minutes=minutes),
        rules=(
            Numbers(),
            Larger("SWR is better than going on", "SWR", ("vanilla",)),
            Larger("SWR is better than all others", "SWR", OTHERS),
        ),
        notes=(FIGURE, GARBLED, *notes),
    )


MNIST = (
    _mnist(
        "warm start",
        23,
        "Written after the run: SWR has the highest mean and is above each other in 4 of 5, by 0.1 to 0.2 points; that "
        "is too little for five seeds. A warm start costs nothing here that starting afresh would save (0.04 points).",
    ),
    _mnist(
        "full access",
        105,
        "Written after the run: SWR is highest, above every other method in 5 of 5 but S&P (4 of 5, by 0.1 points). "
        "L2 Init's mean is pulled down by two seeds that fall within the last 40 epochs (from 98.3 and 98.4% to 97.7 "
        "and 96.3%); the three others end at 98.3 to 98.4%. Why these fall we do not know.",
    ),
    _mnist(
        "limited access",
        22,
        "Written after the run: SWR has the highest mean; L2 Init is 0.1 points below it, which five seeds do not "
        "decide. S&P and starting afresh, with one chunk of 6,000 images to learn from, end 2 and 3 points below.",
    ),
)
_BALANCED = (Measure("balancedness", "metric.balancedness"), Measure())
_BALANCE_RULES = (
    Numbers("balancedness"),
    Larger("SWR is more balanced", "SWR", ("vanilla",), "balancedness", flip=True),
    Larger("SWR has the better accuracy", "SWR", ("vanilla",)),
)
_BALANCE_METHODS = {"vanilla": "none", "SWR": "soft_rescale:strength=1e-3"}


def _balance(epochs: int) -> Fields:
    measured = {"metrics": ("balancedness",), "metrics_each": "epoch", "evaluate_each": max(1, epochs // 20)}
    return {**presets.RUNS["rescaling.generalization.mnist"], "protocol": f"generalization:epochs={epochs}", **measured}


figure_5 = Experiment(
    "soft-rescaling-fig-5",
    PAPER,
    "Fig. 5",
    "SWR keeps a three-layer MLP more balanced between layers than plain training, and more accurate.",
    measures=_BALANCED,
    paper_study=Study(
        cells({**_balance(100), "data": "cifar10"}, {"CIFAR-10 (MLP)": {}}, _BALANCE_METHODS), seeds=5, minutes=14
    ),
    rules=_BALANCE_RULES,
    notes=(
        FIGURE,
        "Not stated: lambda (here 1e-3) and the number of epochs (here 100).",
        "Run before with 10,000 images and 40 epochs: SWR was more balanced in 5 of 5, and better accuracy not decided "
        "(-0.3 points). Those rows are in the history of this file; it is run at the published scale because that can "
        "be done here.",
    ),
)

EXPERIMENTS = (figure_1, figure_1_mlp, *FIGURES, figure_5, *MNIST)
