"""Runs that differ in their seed only, trained as one: the rows of `train_run` in a fraction of the time.

It pays for small networks at full batch, such as the synthetic set's 128-32-32-8; see
`rekindle.lab.runs.stacked_training`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from rekindle.errors import SettingsError
from rekindle.keeper.checks import changes_structure
from rekindle.lab.runs.learner import Learner
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.stacked_training import learn_together
from rekindle.lab.runs.training_run import Row, head_of, learner_of, stages_of, thread_count, train_config_of
from rekindle.lab.runs.validate import check, methods_of
from rekindle.methods.kinds import IN_STEPS, kind_of
from rekindle.methods.spec import FRESH, name_of
from rekindle.training.optimizers import optimizer
from rekindle.training.stage import Stage

PROTOCOLS = ("rounds", "generalization", "warm_start")
NETWORKS = ("mlp", "mlp_synthetic")
OPTIMIZERS = ("sgd", "adam", "adamw")  # treat each element by itself
PENALTIES = ("l2",)  # per-step methods that add a sum over elements to the loss, and do nothing else
LARGEST = 2**30  # bytes of inputs that are stacked; beyond it the networks are not small either


def run_stacked(runs: Sequence[Run], *, progress: Callable[[Row], None] | None = None) -> dict[str, list[Row]]:
    """Train runs that differ in their seed only, all at once, and return their rows by key.

    The rows are those of `rekindle.lab.runs.training_run.train_run` up to rounding; seconds are equal shares of the
    common time. Nothing is saved: a stack that is killed begins anew.

    Args:
        runs: What to train; a protocol and a network that can be stacked, with l2, one-shot methods or "fresh".
        progress: Called with each new row.

    Raises:
        SettingsError: The runs cannot be stacked.
        TrainingError: The loss of one of them is not finite.

    Example:
        >>> spec = {"protocol": "rounds:steps=5", "data": "synthetic:train=64", "model": "mlp_synthetic"}
        >>> runs = [Run(**spec, optimizer="sgd:lr=0.1,momentum=0.9", seed=seed) for seed in range(3)]
        >>> {key: len(rows) for key, rows in run_stacked(runs).items()} == {run.key: 17 for run in runs}
        True
    """
    check_stackable(runs)
    config = train_config_of(runs[0])
    with thread_count(runs[0].threads):
        parts = [stages_of(run) for run in runs]
        _check_stages(runs[0], [stages for stages, _ in parts])
        classes = max(count for _, count in parts)
        learners: list[Learner] = []
        for run, (stages, _) in zip(runs, parts, strict=True):
            learners.append(learner_of(run, stages, classes, learners[0].graph if learners else None))
        told = [_teller(run, progress) for run in runs]
        example = parts[0][0][0].train.batch(slice(2))
        penalties = [one for one in methods_of(runs[0].methods) if one.key in PENALTIES]
        learn_together(learners, lambda stack: optimizer(runs[0].optimizer, stack, example), config, told, penalties)
    rows = zip(runs, [learner.run() for learner in learners], strict=True)  # nothing is left to train
    return {run.key: [{**head_of(run), **row} for row in own] for run, own in rows}


def _teller(run: Run, progress: Callable[[Row], None] | None) -> Callable[[Row], None]:
    head = head_of(run)
    return lambda row: None if progress is None else progress({**head, **row})


def check_stackable(runs: Sequence[Run]) -> None:
    """Raise a SettingsError if the runs cannot be trained as one; nothing is loaded or built."""
    if not runs:
        raise _refusal("at least one run", "none")
    check(runs[0].to_dict())
    seeds = [run.seed for run in runs]
    if any(replace(run, seed=0) != replace(runs[0], seed=0) for run in runs) or len(set(seeds)) < len(seeds):
        raise _refusal("runs that differ in their seed, and in nothing else", f"{len(runs)} runs with seeds {seeds}")
    for expected, got in _obstacles(runs[0]):
        raise _refusal(expected, got)


def _obstacles(run: Run) -> Iterator[tuple[str, str]]:
    names = (("protocol", PROTOCOLS), ("model", NETWORKS), ("optimizer", OPTIMIZERS))
    for field, allowed in names:
        given = getattr(run, field)
        if name_of(given) not in allowed:
            yield f"one of these as {field}: {', '.join(allowed)}", f"{given!r}"
    for one in methods_of(run.methods):
        if one.key not in PENALTIES and (kind_of(one) in IN_STEPS or changes_structure(one)):
            yield f"{', '.join(PENALTIES)}, or methods that act between stages and keep the structure", f"{one}"
    plain = {"clip": None, "precision": "float32", "augment": "none", "validation": 0.0, "patience": None}
    for field, value in plain.items():
        if getattr(run, field) != value:
            yield f"{field}={value}", f"{field}={getattr(run, field)!r}"


def _check_stages(run: Run, stages: Sequence[Sequence[Stage]]) -> None:
    acts = run.methods == FRESH or any(one.key not in PENALTIES for one in methods_of(run.methods))
    for number, own in enumerate(zip(*stages, strict=True)):
        first = own[0]
        if first.validation is not None:
            raise _refusal("a protocol without validation, so that stages end for all seeds at once", run.protocol)
        if number and first.boundary and not first.fresh_optimizer and acts:  # at the beginning it has no past
            raise _refusal("an optimizer that begins anew where methods act", f"{run.protocol!r} with {run.methods!r}")
        shapes = {(len(s.train), len(s.test), s.train.shape) for s in own}
        if len(shapes) > 1:
            raise _refusal("as many examples for every seed", f"{sorted(shapes)} in stage {first.name!r}")
        size = sum(part.inputs.numel() * 4 for s in own for part in (s.train, s.test))
        if size > LARGEST:
            raise _refusal(f"at most {LARGEST:,} bytes of inputs over all seeds", f"{size:,} in stage {first.name!r}")


def _refusal(expected: str, got: str) -> SettingsError:
    return SettingsError(
        expected=f"{expected}, to train runs as one", got=got, fix="train them one after the other with `train_run`"
    )
