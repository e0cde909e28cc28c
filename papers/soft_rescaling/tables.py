"""Soft weight rescaling, Tables 1 and 5: test accuracy after 200 epochs."""

from __future__ import annotations

from collections.abc import Mapping

from papers.experiment import Experiment, Fields, Study, cells, published
from papers.rules import Larger, Numbers
from papers.soft_rescaling import PAPER
from rekindle.lab.runs import presets
from rekindle.methods import change

COLUMNS = {
    "mnist": "MNIST (MLP)",
    "cifar10": "CIFAR-10 (CNN)",
    "cifar100": "CIFAR-100 (CNN)",
    "cifar100_bn": "CIFAR-100 (CNN-BN)",
    "tiny_imagenet": "TinyImageNet (VGG-16)",
}
TABLE_1 = {
    "vanilla": [(0.9789, 0.0009), (0.6500, 0.0083), (0.3283, 0.0067), (0.3234, 0.0053), (0.3912, 0.0142)],
    "L2": [(0.9795, 0.0019), (0.7119, 0.0037), (0.3882, 0.0064), (0.4222, 0.0043), (0.3915, 0.0108)],
    "L2 Init": [(0.9793, 0.0016), (0.7041, 0.0125), (0.3881, 0.0050), (0.4030, 0.0105), (0.3870, 0.0143)],
    "SWR": [(0.9822, 0.0024), (0.7158, 0.0063), (0.3914, 0.0070), (0.4129, 0.0105), (0.4348, 0.0025)],
}
TABLE_5 = {
    "vanilla": [(0.9798, 0.0005), (0.6571, 0.0057), (0.3490, 0.0021), (0.3483, 0.0043), (0.4126, 0.0236)],
    "L2": [(0.9811, 0.0007), (0.7304, 0.0039), (0.3949, 0.0091), (0.4532, 0.0040), (0.4080, 0.0124)],
    "L2 Init": [(0.9811, 0.0007), (0.7286, 0.0023), (0.4048, 0.0019), (0.4341, 0.0019), (0.4199, 0.0048)],
    "SWR": [(0.9796, 0.0009), (0.6925, 0.0078), (0.3599, 0.0054), (0.4240, 0.0015), (0.5221, 0.0123)],
    "SWR + re-init": [(0.9829, 0.0002), (0.7269, 0.0027), (0.4133, 0.0058), (0.4451, 0.0028), (0.5165, 0.0070)],
}
# Column -> fields of the reduction, epochs, minutes for Table 1 and what was reduced; MNIST is run as published.
# Batches are small because the methods act at every step: batches of 256 would leave too few steps.
TENTH = {"sample_fraction": 0.1, "batch_size": 64}
REDUCTIONS: dict[str, tuple[Fields, int, float, str]] = {
    "cifar10": (
        {"data": "cifar10:size=16", "sample_fraction": 0.2, "batch_size": 64},
        100,
        20,
        "10,000 images of 16x16, batches of 64, 100 epochs",
    ),
    "cifar100": (TENTH, 60, 17, "5,000 images, batches of 64, 60 epochs"),
    "cifar100_bn": (TENTH, 60, 34, "5,000 images, batches of 64, 60 epochs"),
    "tiny_imagenet": (
        {**TENTH, "model": "vgg16:width=8,hidden=512"},
        60,
        90,
        "10,000 images, an eighth of the channels, 64 hidden units, batches of 64, 60 epochs",
    ),
}


AFTERWARDS = {
    ("Table 1", "cifar10"): (
        "Run before with 5,000 images of 32x32 and 60 epochs, which are 4,740 steps where the published runs have "
        "39,200: nothing was decided, and L2 was 0.9 points better than SWR in 5 of 5. Smaller images give 15,700 "
        "steps in the same time. Those rows are in the history of this file.",
    ),
    ("Table 5", "cifar10"): (
        "Printed are L2 and L2 Init 0.2 to 0.4 points above SWR + re-init: the claim is of the table as a whole.",
        "Written after the run: SWR alone is 2.1 points below plain training, where 3.5 above are printed. We think "
        "that after a drop of the rate the rescaling, whose strength stays, outweighs what is learned; re-init takes "
        "the norms of then as those to go back to. Why it costs more here than in the paper we do not know.",
    ),
    ("Table 5", "mnist"): (
        "Written after the run: L2, L2 Init and SWR + re-init agree with the published numbers; plain training and SWR "
        "alone are 0.2 points above them, as all of Table 1 is. Re-init is best and SWR alone no better than plain "
        "training, as published.",
    ),
    ("Table 1", "mnist"): (
        "Written after the run: all four means lie 0.2 to 0.3 points above the published ones; plain training is the "
        "worst and SWR the best, as published.",
    ),
}


def best_of(column: str) -> dict[str, str]:
    """Return the methods of a column with their best settings (Table 4)."""
    best = presets.BEST[f"rescaling.generalization.{column}"]
    return {"vanilla": "none", "L2": best["l2"], "L2 Init": best["l2_init"], "SWR": best["soft_rescale"]}


def _without_rebase(spec: str) -> str:
    return change(spec, rebase_on_drop=0)


def _methods(column: str, decay: bool, epochs: int) -> dict[str, Fields]:
    path = f"generalization:epochs={epochs}" + (",decay=true" if decay else "")
    methods: dict[str, Fields] = {name: {"methods": spec, "protocol": path} for name, spec in best_of(column).items()}
    if decay:
        swr = best_of(column)["SWR"]
        methods["SWR"] = {"methods": _without_rebase(swr), "protocol": path}
        methods["SWR + re-init"] = {"methods": _without_rebase(swr), "protocol": change(path, rebase="true")}
    return methods


def _table(column: str, where: str, numbers: Mapping[str, list[tuple[float, float]]], decay: bool) -> Experiment:
    base = {**presets.RUNS[f"rescaling.generalization.{column}"], "evaluate_each": 200}
    seeds = 3 if column == "tiny_imagenet" else 5
    whole = Study(cells(base, {COLUMNS[column]: {}}, _methods(column, decay, 200)), seeds=seeds)
    minutes = 25.0 if decay else 20.0
    small = Study(whole.cells, seeds=seeds, minutes=minutes)
    if column in REDUCTIONS:
        fields, epochs, minutes, reduced = REDUCTIONS[column]
        few = cells({**base, **fields}, {COLUMNS[column]: {}}, _methods(column, decay, epochs))
        small = Study(few, seeds=5, minutes=minutes * (1.25 if decay else 1), reduced=reduced)
    ours = "SWR + re-init" if decay else "SWR"
    return Experiment(
        f"soft-rescaling-{where.lower().replace(' ', '-')}-{column.replace('_', '-')}",
        PAPER,
        f"{where}, {COLUMNS[column]}",
        f"Test accuracy after 200 epochs{' with learning rate decay' if decay else ''}: SWR against L2 and L2 Init.",
        published={
            key: value
            for key, value in published(list(COLUMNS.values()), numbers, n=seeds).items()
            if key[0] == COLUMNS[column]
        },
        paper_study=whole,
        cpu_study=small,
        rules=(
            Numbers(),
            Larger(f"{ours} is better than plain training", ours, ("vanilla",)),
            Larger(f"{ours} is better than L2 and L2 Init", ours, ("L2", "L2 Init")),
            *((Larger("re-init improves SWR", ours, ("SWR",)),) if decay else ()),
        ),
        notes=(
            "Not stated: how inputs are normalized (here mean 0, deviation 1) and how weights start (here torch's).",
            *AFTERWARDS.get((where, column), ()),
        ),
    )


EXPERIMENTS = tuple(
    _table(column, where, numbers, decay)
    for where, numbers, decay in (("Table 1", TABLE_1, False), ("Table 5", TABLE_5, True))
    for column in COLUMNS
)
