"""The proof of a group on the part of the model that it is in.

One live call of the model is kept as a tape. With the outgoing slots of a group silent, its incoming and normalization
slots are disturbed, and the difference is followed: it must end at the weights that read the group, before the model's
output. A weight that sees it although the graph does not count it among the group's readers is named, also where all it
does is to write into the same units again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rekindle.errors import GraphError
from rekindle.graph.calls.containers import map_tensors
from rekindle.graph.calls.inputs import as_call
from rekindle.graph.groups import Group, Slot, owner_of
from rekindle.graph.modules import parameters_of
from rekindle.graph.proof.disturbance import disturbed, exchanged, of_units, silenced
from rekindle.graph.proof.recorder import record
from rekindle.graph.proof.refutation import BREAKS, NEVER_SILENT, OWN_PRODUCT, SEEN, SILENT, read_elsewhere
from rekindle.graph.proof.silence import never_silent
from rekindle.graph.proof.spread import NOWHERE, Broken, Ends, Read, Spread, change
from rekindle.graph.proof.tape import Tape, Unfollowable
from rekindle.graph.proof.whole_trial import call_at_rest, cast, copies_of
from rekindle.seeds import generator

Tensors = Mapping[str, Tensor]
APART = 0.02  # two halves of a group overlap less along an axis: it is the axis of its units
SIZES = (1.0, 1e3)  # strong noise drowns constants that are added to units, which no exchange moves


@dataclass(frozen=True, eq=False)
class _Variant:
    """Tensors that replace the model's: everywhere, and for tied tables where rows of them are looked up."""

    tensors: Tensors
    looked_up: Tensors

    def changed(self, slots: Sequence[Slot], spare: Sequence[Slot], how: Callable[..., dict[str, Tensor]]) -> _Variant:
        """Return the variant with a change to slots; where a tied table is looked up, nothing of it is spared."""
        tied = [slot for slot in slots if slot.tensor in self.looked_up]
        return _Variant(
            how(slots=slots, start=self.tensors, spare=spare), how(slots=tied, start=self.looked_up, spare=())
        )


@dataclass(frozen=True, eq=False)
class _Trial:
    """What one group is tried with: its silence, the slots that are silent, and where it may be seen all the same."""

    group: Group
    silent: _Variant
    outgoing: list[Slot]
    seed: int
    ends: Ends = NOWHERE

    @property
    def slots(self) -> tuple[Slot, ...]:
        """What writes and normalizes the units."""
        return (*self.group.incoming, *self.group.norms)


class LocalTrial:
    """Tries groups on the tape of one call of a model.

    Args:
        model: The model, without wrappers.
        example: What it is called with.
        gains: For each gain of weight_norm its direction and dimension.

    Raises:
        Unfollowable: The call cannot be followed, or with other weights the model does something else.
    """

    def __init__(self, model: nn.Module, example: Any, gains: Mapping[str, tuple[str, int]]) -> None:
        self.gains = gains
        self.tensors, self.tape = _taped(model, example)

    def is_seen(self, group: Group, seed: int) -> bool:
        """Tell whether a change of the units is seen by what reads them."""
        return any(self._is_seen(disturbed(self.tensors, group.incoming, {}, (), seed, size)) for size in (1.0, 10.0))

    def _is_seen(self, after: dict[str, Tensor]) -> bool:
        spread = Spread(self.tape, [{name: self.tensors[name] for name in after}, after], SEEN)
        return next(spread.reads(), None) is not None or spread.outputs() > 0

    def refute(self, group: Group, closure: Sequence[Group], seed: int) -> str | None:
        """Try to see the units of a group with their outgoing slots at zero; return why it could not be tried.

        Raises:
            GraphError: They are seen.
            Unfollowable: The difference reaches something that cannot be run again.
        """
        outgoing = [slot for g in closure for slot in g.outgoing]
        tied = {slot.tensor for slot in group.incoming} & {slot.tensor for slot in outgoing}
        silent = _Variant(silenced(self.tensors, outgoing, self.gains), {name: self.tensors[name] for name in tied})
        trial = _Trial(group, silent, outgoing, seed)
        try:
            return self._refute(trial)[0]
        except GraphError as error:
            return self._excused(trial, any(g.kind == "score" for g in closure), error)

    def _excused(self, trial: _Trial, score: bool, error: GraphError) -> str:
        """Return why a group is seen although the graph is right: what cannot be silenced is seen, and nothing else.

        Raises:
            GraphError: It is seen elsewhere.
        """
        weights = never_silent(self.tape, trial.silent.tensors, trial.outgoing)
        excuses = {NEVER_SILENT: Ends(weights), OWN_PRODUCT: Ends(weights, own_products=score)}
        for reason, ends in excuses.items():
            try:
                _, ended = self._refute(replace(trial, ends=ends))
            except GraphError:
                continue
            if ended:
                return reason
        if weights and score:  # keys: queries meet what they make, not the weights
            return NEVER_SILENT
        raise error

    def _refute(self, trial: _Trial) -> tuple[str | None, bool]:
        """Return why a group could not be tried, and whether its units were seen where they may be."""
        spread = self._spread(trial, trial.silent, self._disturbed(trial))
        try:
            reads = list(spread.reads())
        except Broken:
            return BREAKS, False
        self._refuse_readers(trial, reads)
        if spread.outputs() > 0:
            through = f", through {self._place(reads[0])}" if reads else ""
            seen = f"a relative change of {spread.outputs():.3g} at the model's output{through}"
            raise read_elsewhere(trial.group, seen)
        return None, spread.ended

    def _refuse_readers(self, trial: _Trial, reads: list[Read]) -> None:
        """Raise if one of the weights reads the units; others carry them along (they mix tokens, or positions)."""
        for size in SIZES if reads else ():
            apart = self._apart(trial, size)
            for read in reads:
                if (read.node.index, read.side.value) in apart:
                    raise read_elsewhere(trial.group, f"a change in {self._place(read)}")

    def _apart(self, trial: _Trial, size: float) -> set[tuple[int, int]]:
        """Return the operands in which two halves of the group lie apart along the axis that is summed over.

        The units of each half are exchanged among themselves: a normalization over all of them is then the same.
        """
        if trial.group.size == 1:
            return set()
        start = self._disturbed(trial, size)
        halves = [self._moved(trial, start, half) for half in range(2)]
        try:
            found = list(self._spread(trial, start, *halves).reads())
        except Broken:
            return set()
        return {(read.node.index, read.side.value) for read in found if _lie_apart(read)}

    def _moved(self, trial: _Trial, start: _Variant, half: int) -> _Variant:
        size = trial.group.size
        if size < 4:
            some = of_units(trial.slots, torch.tensor([half]))
            return start.changed(some, trial.outgoing, partial(disturbed, self.tensors, seed=trial.seed + 1))
        order = torch.arange(size)
        middle = size // 2
        for unit in range(half * middle, (half + 1) * middle - 1, 2):
            order[unit], order[unit + 1] = unit + 1, unit
        return start.changed(trial.slots, trial.outgoing, partial(exchanged, self.tensors, order=order))

    def _disturbed(self, trial: _Trial, size: float = 1.0) -> _Variant:
        noise = partial(disturbed, self.tensors, seed=trial.seed, size=size)
        return trial.silent.changed(trial.slots, trial.outgoing, noise)

    def _spread(self, trial: _Trial, *variants: _Variant) -> Spread:
        names = dict.fromkeys(name for variant in variants for name in variant.tensors)
        tensors = [{name: v.tensors.get(name, self.tensors[name]) for name in names} for v in variants]
        return Spread(self.tape, tensors, SILENT, [v.looked_up for v in variants], trial.ends)

    def _place(self, read: Read) -> str:
        """Return "module: operation" of a weight; a constant has no module."""
        names = self.tape.names_behind(read.side.other)
        return f"{owner_of(names[0]) if names else 'a constant'}: aten.{read.node.op}"


def _lie_apart(read: Read) -> bool:
    start, *halves = read.variants
    other = tuple(d for d in range(start.ndim) if d != read.side.dim % start.ndim)
    felt = [(half - start).abs().amax(other) if other else (half - start).abs() for half in halves]
    strength = min(float(each.max()) for each in felt)
    both = float(torch.minimum(*felt).max())
    return 0 < strength < float("inf") and both < APART * strength


def _taped(model: nn.Module, example: Any) -> tuple[dict[str, Tensor], Tape]:
    """Return a model's tensors and the tape of a call with them: in float64, or as they are where it cannot run so."""
    for wide in (True, False):
        tensors, given = copies_of(model, wide), cast(as_call(model, example), wide)
        try:
            tape = _tape(model, tensors, given)
        except (RuntimeError, TypeError) as error:
            failure = error
        else:
            _must_be_the_model(tape, model, tensors, given)
            return tensors, tape
    raise Unfollowable(f"it does not run under observation: {failure}") from failure


def _tape(model: nn.Module, tensors: Tensors, given: Any) -> Tape:
    return record(lambda own, call: call_at_rest(model, own, call), tensors, set(parameters_of(model)), given)


def _must_be_the_model(tape: Tape, model: nn.Module, tensors: Tensors, given: Any) -> None:
    """Compare the tape with the model, both with slightly other values for all tensors.

    What the model's code takes out of torch (`tolist`, NumPy) is a constant on the tape, but not in the model.
    """
    other = {name: _slightly_other(name, tensor) for name, tensor in tensors.items()}
    replayed = tape.replay(other)
    live = call_at_rest(model, other, map_tensors(Tensor.clone, given))
    if len(live) != len(replayed) or any(not change(a, b) <= SILENT for a, b in zip(live, replayed, strict=True)):
        raise Unfollowable("with other weights the model computes something else than the operations it was seen to do")


def _slightly_other(name: str, tensor: Tensor) -> Tensor:
    if not tensor.is_floating_point():
        return tensor.clone()
    return tensor * (1 + 1e-3 * torch.randn(tensor.shape, generator=generator(0, name, "tape")).to(tensor))
