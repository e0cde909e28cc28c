"""Compare on the user's own model: go on, treat, or start afresh? One checkpoint, several ways on, the same batches.

    found = rk.compare(model, train, test, ["fire", "shrink_perturb"], budget=200, seeds=5)
    print(found)            # a table, and the verdict below it

Seeds differ in the order of the batches, in dropout, in what methods draw and in the fresh network. The checkpoint is
one: intervals say how sure the answer is for this network and these data, not for others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.progress import Progress
from torch import nn
from torch.optim import Optimizer

from rekindle.comparison.batches import TrainingBatches, held_out, own_generators
from rekindle.comparison.result import Comparison
from rekindle.comparison.scores import ScoreFunction, scorer
from rekindle.comparison.trials import CompareError, Make, TrialSetup, run_all
from rekindle.errors import RekindleError
from rekindle.graph import UnitGraph, trace
from rekindle.graph.modules import tensors_of
from rekindle.graph.plain import why_not_plain
from rekindle.graph.scan import scan
from rekindle.graph.unwrap import bare
from rekindle.keeper.checks import refuse_method
from rekindle.kernels.finite import finite
from rekindle.methods.registry import methods as methods_of
from rekindle.methods.spec import FRESH, UNTREATED, to_spec
from rekindle.observe import Loss, Reference
from rekindle.observe.batches import inputs_of
from rekindle.observe.losses import default_loss
from rekindle.observe.visit import device_of
from rekindle.statistics.intervals import needed
from rekindle.training.copying import copied

DEFAULT = (UNTREATED, "fire", "shrink_perturb", "soft_rescale")
ADAM = "adam:lr=1e-3"


def compare(
    model: nn.Module,
    train: Any,
    test: Any,
    methods: Sequence[Any] = DEFAULT,
    *,
    budget: int | str = 200,
    seeds: int | Sequence[int] = 5,
    loss: Loss | None = None,
    optimizer: str | Optimizer | Make | None = None,
    metric: ScoreFunction | None = None,
    example: Any = None,
    reference: Reference | None = None,
    fresh: Callable[[], nn.Module] | None = None,
    batch_size: int = 256,
    progress: bool = False,
) -> Comparison:
    """Train copies of a model on new data: as it is, treated in several ways, and started afresh; say what is best.

    The model, its optimizer and all generators are left as they were. Going on untreated ("none") and a fresh start
    ("fresh") always take part. A method that fails is reported and stops no other.

    Args:
        model: The checkpoint, live.
        train: The new data: batches (a list, a DataLoader), or a tuple of two tensors (inputs, targets). A batch is
            (inputs, targets), or a dict with `labels`. Batches are kept in memory, as many as the budget has steps at
            most.
        test: What the score is measured on, in the same forms.
        methods: Specs, several of them joined with "+", or settings. One-shot methods act once before the training,
            per-step methods and recyclers in a Keeper all through it.
        budget: Length of each training: a number of steps, or text: "200 steps", "3 epochs".
        seeds: How many repetitions, at least 2, or the seeds themselves.
        loss: Function (model, batch) -> scalar, a mean over the samples of the batch. Left out: the model's own loss
            where it gives one, else the cross entropy of its logits and integer targets.
        optimizer: A spec ("adam:lr=1e-3", the default; "sgd:lr=0.1,momentum=0.9"), a function (model) -> optimizer, or
            the optimizer that trains the model now: copies of it go on with its moments.
        metric: Function (model, batches) -> float, more is better. Left out: accuracy where integer targets go with
            the logits one by one, else minus the loss.
        example: Input for the model; from the training data, if left out.
        reference: Initial weights, for methods that ask for them.
        fresh: Builds a fresh model of the same architecture; left out, tensors are drawn by their layers'
            own initializers.
        batch_size: Examples of a training batch, where tensors are given.
        progress: Show a progress bar.

    Raises:
        RekindleError: Nothing can be compared: no methods, an unknown one, fewer than two seeds, weights that are not
            finite, a model that cannot be copied, data and loss that do not fit.

    Example:
        >>> import torch
        >>> data = (torch.randn(64, 4), torch.randint(2, (64,)))
        >>> found = compare(nn.Linear(4, 2), data, data, ["shrink_perturb"], budget=3, seeds=2)
        >>> [outcome.method for outcome in found.outcomes]
        ['none', 'shrink_perturb', 'fresh']
    """
    needed("scipy.stats")
    names, numbers = _named(methods), _seeds(seeds)
    inner = _checked_model(model)
    _refuse_optimizer(optimizer)
    device = device_of(inner.parameters())
    with own_generators(0, "data", train, test):
        batches = TrainingBatches(train, batch_size=batch_size, device=device, most=_most(budget))
        probe = copied(inner, CompareError)
        example = inputs_of(batches.first) if example is None else example
        setup = TrialSetup(
            model=inner,
            batches=batches,
            steps=_steps(budget, batches),
            loss=loss or default_loss,
            optimizer=optimizer or ADAM,
            example=example,
            reference=reference,
            fresh=fresh,
            graph=_graph(probe, example),
            scorer=scorer(probe, held_out(test, device), loss or default_loss, metric),
        )
        setup.before.update(setup.scorer(probe))
    with Progress(transient=True, disable=not progress) as bar:
        run_all(setup, names, numbers, bar)
    return Comparison(tuple(setup.rows), tuple(setup.trials), setup.scorer.name, setup.failed, tuple(setup.notes))


def _graph(model: nn.Module, example: Any) -> UnitGraph:
    try:
        return trace(model, example, strict=False)
    except RekindleError:  # methods that need more than weights say so themselves
        return scan(model)


def _named(methods: Any) -> dict[str, tuple[Any, ...]]:
    """Return the ways on by name: "none" first, the fresh start last."""
    given = [methods] if isinstance(methods, str) or not isinstance(methods, Sequence) else list(methods)
    if not given:
        raise CompareError(
            expected="at least one method to compare with going on and with a fresh start",
            got="none",
            fix='write for example methods=["fire", "shrink_perturb"]; `rekindle list` shows all',
        )
    names: dict[str, tuple[Any, ...]] = {UNTREATED: ()}
    for one in given:
        name = to_spec(one)
        if name not in (UNTREATED, FRESH):
            names[name] = methods_of(one)
            for each in names[name]:
                refuse_method(each)
    return {**names, FRESH: ()}


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if len(set(numbers)) < 2 or len(set(numbers)) < len(numbers):
        raise CompareError(
            expected="at least 2 different seeds, for a spread; 5 or more to decide on",
            got=f"seeds={seeds!r}",
            fix="leave seeds= out for 5",
        )
    return numbers


def _budget(budget: int | str) -> tuple[int, str]:
    words = [*str(budget).split(), "steps"][:2] if isinstance(budget, (int, str)) else ["", ""]
    number, unit = words[0], words[1].rstrip("s")
    if not number.isdigit() or int(number) < 1 or unit not in ("step", "epoch"):
        raise CompareError(
            expected="budget: a number of steps of at least 1, or text as in '200 steps' or '3 epochs'",
            got=repr(budget),
            fix="write budget=200 for 200 steps of each training",
        )
    return int(number), unit


def _steps(budget: int | str, batches: TrainingBatches) -> int:
    number, unit = _budget(budget)
    return number * (batches.each if unit == "epoch" else 1)


def _most(budget: int | str) -> int | None:
    number, unit = _budget(budget)
    return number if unit == "step" else None


def _refuse_optimizer(optimizer: Any) -> None:
    if not (optimizer is None or isinstance(optimizer, (str, Optimizer)) or callable(optimizer)):
        raise CompareError(
            expected="optimizer: a spec, a function (model) -> optimizer, or the optimizer of the model",
            got=type(optimizer).__name__,
            fix='write for example optimizer="sgd:lr=0.1,momentum=0.9"',
        )


def _checked_model(model: Any) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise CompareError(
            expected="a live model (nn.Module)",
            got=type(model).__name__,
            fix="load the checkpoint into the model; `rekindle compare` does that for a file",
        )
    inner = bare(model)
    for name, tensor in tensors_of(inner).items():
        if tensor.is_meta or tensor.is_nested:
            raise CompareError(
                expected="tensors with values and one shape, so that copies can be trained",
                got=f"{name}: " + ("on the meta device, without values" if tensor.is_meta else why_not_plain(tensor)),
                fix="load the weights first, and give the model without nested tensors",
            )
        if tensor.is_floating_point() and not why_not_plain(tensor) and not finite(tensor):
            raise CompareError(
                expected="finite values in every tensor",
                got=f"NaN or infinite ones in {name}",
                fix="this network has diverged: go back to a checkpoint from before, with a lower learning rate",
            )
    return inner
