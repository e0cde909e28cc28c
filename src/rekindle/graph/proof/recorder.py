"""Write the tape of a live call.

It is written below Python: whatever the model's code does, the operations are those that were computed. Operations that
write into a tensor are kept as functions: each write makes a new value, and what shares its memory is brought up to
date when it is next used. So every value on the tape stays what it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from rekindle.graph.calls import containers
from rekindle.graph.proof.tape import At, Node, Tape, Unfollowable, tensors_in

Geometry = tuple[tuple[int, ...], tuple[int, ...], int]  # size, stride, offset


def record(
    call: Callable[[dict[str, Tensor], Any], Sequence[Tensor]],
    leaves: Mapping[str, Tensor],
    learned: Set[str],
    example: Any,
) -> Tape:
    """Run a call and return its tape.

    Args:
        call: What is run, with its tensors and an example; returns the results that count.
        leaves: Parameters and buffers by name; they are copied.
        learned: Which of the names are parameters.
        example: What the call depends on beside them; tensors in it are copied.

    Raises:
        Unfollowable: Something was computed that is not kept here (views of other types, sparse tensors).
    """
    tape = Tape()
    recorder = Recorder(tape)
    given = {name: tensor.detach().clone() for name, tensor in leaves.items()}
    for name, tensor in given.items():
        tape.leaves[name] = recorder.enter(tensor, data=False, learned=name in learned)
    example = containers.map_tensors(lambda x: x.detach().clone(), example)
    for tensor in containers.tensors_in(example):
        recorder.enter(tensor, data=True, learned=False)
    with recorder:
        results = call(given, example)
    tape.outputs = [recorder.value_of(tensor) for tensor in results]
    return tape


@dataclass(eq=False)
class _Known:
    """A tensor of the live call: its present value, and how many writes into its memory that includes."""

    tensor: Tensor  # kept, so that its id stays its own
    value: int
    memory: int
    writes: int


class Recorder(TorchDispatchMode):
    """Writes a tape while the model runs."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self.tape = tape
        self.known: dict[int, _Known] = {}
        self.sharing: dict[int, list[int]] = defaultdict(list)  # memory -> ids of tensors in it
        self.writes: dict[int, list[tuple[int, Geometry]]] = defaultdict(list)  # memory -> value, where
        self.in_memory: dict[int, list[int]] = defaultdict(list)  # memory -> values that are still read from there

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation and write it down."""
        kwargs = kwargs or {}
        written = _written(func, args, kwargs)
        at = {id(tensor): self.value_of(tensor) for tensor in tensors_in((args, kwargs))}
        own_args, own_kwargs = pytree.tree_map(
            lambda item: At(at[id(item)]) if isinstance(item, Tensor) else item, (tuple(args), dict(kwargs))
        )
        for tensor in written:
            self._keep_what_was(_memory(tensor))
        drawn = _random_states(func)
        result = func(*args, **kwargs)
        random = any(not torch.equal(*pair) for pair in zip(drawn, _random_states(func), strict=True))
        made = [t for t in tensors_in(result) if not any(t is w for w in written)]
        scalar = None if made or written else result
        values = tuple(at[id(tensor)] for tensor in written)
        inputs = tuple(dict.fromkeys(at.values()))
        self._write_down(func, own_args, own_kwargs, inputs, [*written, *made], values, scalar, random)
        return result

    def enter(self, tensor: Tensor, *, data: bool, learned: bool) -> int:
        """Enter a tensor that nothing on the tape has made."""
        return self._know(tensor, self.tape.add_value(tensor, None, data=data, learned=learned))

    def value_of(self, tensor: Tensor) -> int:
        """Return the present value of a tensor; it is brought up to date where its memory was written to."""
        known = self.known.get(id(tensor))
        if known is None:
            known = self._met(tensor)
        log = self.writes[known.memory] if known.memory in self.writes else []
        if known.writes < len(log):
            self._bring_up_to_date(known, log[known.writes :])
        return self.known[id(tensor)].value

    def _met(self, tensor: Tensor) -> _Known:
        """Enter a tensor that was made behind the tape's back: `.data` of a known one, or a constant."""
        others = [self.known[other] for other in self.sharing.get(_memory(tensor), ())]
        if not others:
            self.enter(tensor, data=False, learned=False)
            return self.known[id(tensor)]
        whole = max(others, key=lambda other: other.tensor.numel())
        start = self.value_of(whole.tensor)
        view = _through_memory(_geometry(whole.tensor), _geometry(tensor), (), (whole.tensor, tensor))
        self._write_down(view, (At(start),), {}, (start,), [tensor], ())
        return self.known[id(tensor)]

    def _bring_up_to_date(self, known: _Known, writes: list[tuple[int, Geometry]]) -> None:
        values = [known.value, *(value for value, _ in writes)]
        own = _geometry(known.tensor)
        tensors = (known.tensor, *(self.tape.values[value] for value in values))
        renew = _through_memory(own, own, [where for _, where in writes], tensors)
        self._write_down(renew, tuple(map(At, values)), {}, tuple(dict.fromkeys(values)), [known.tensor], ())

    def _write_down(
        self,
        target: Any,
        args: Any,
        kwargs: Any,
        inputs: tuple[int, ...],
        made: list[Tensor],
        written: tuple[int, ...],
        scalar: Any = None,
        random: bool = False,
    ) -> None:
        tape, index = self.tape, len(self.tape.nodes)
        data, learned = any(tape.data[v] for v in inputs), any(tape.learned[v] for v in inputs)
        outputs = tuple(range(len(tape.values), len(tape.values) + len(made)))
        tape.nodes.append(Node(index, target, args, kwargs, inputs, outputs, written, scalar, random))
        for tensor in made:
            tape.add_value(tensor, index, data=data, learned=learned)
        for value in inputs:
            tape.users[value].append(index)
        for n, (tensor, value) in enumerate(zip(made, outputs, strict=True)):
            if n < len(written):
                self.writes[_memory(tensor)].append((value, _geometry(tensor)))
            self._know(tensor, value)

    def _know(self, tensor: Tensor, value: int) -> int:
        memory = _memory(tensor)
        if id(tensor) not in self.known:
            self.sharing[memory].append(id(tensor))
        self.known[id(tensor)] = _Known(tensor, value, memory, len(self.writes.get(memory, ())))
        self.in_memory[memory].append(value)
        return value

    def _keep_what_was(self, memory: int) -> None:
        """Copy the values that lie in a memory before it is written to."""
        for value in self.in_memory.pop(memory, ()):
            self.tape.values[value] = self.tape.values[value].clone()


def _written(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """Return the tensors that an operation writes into."""
    if not func._schema.is_mutable:
        return []
    found: list[Tensor] = []
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[position] if position < len(args) else kwargs.get(argument.name)
            found += [t for t in tensors_in(given) if not any(t is other for other in found)]
    return found


def _random_states(func: Any) -> list[Tensor]:
    """Return the states of torch's generators around an operation that may draw; attention does so for dropout only."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return []
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ())]


def _memory(tensor: Tensor) -> int:
    if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__ or tensor.layout != torch.strided:
        raise Unfollowable(f"tensors of the type {type(tensor).__name__}, {tensor.layout}")
    return int(tensor.untyped_storage()._cdata)


def _geometry(tensor: Tensor) -> Geometry:
    """Return how a tensor lies in its memory, each element once."""
    spread = zip(tensor.shape, tensor.stride(), strict=True)
    size = tuple(1 if stride == 0 and size > 1 else size for size, stride in spread)
    return size, tensor.stride(), int(tensor.storage_offset())


def _through_memory(
    own: Geometry, seen: Geometry, writes: Sequence[Geometry], tensors: Sequence[Tensor]
) -> Callable[..., Tensor]:
    """Return a function of a tensor and what was written into its memory: what is then seen there."""
    if len({tensor.dtype for tensor in tensors}) > 1:
        raise Unfollowable("memory that is read as two types of numbers")
    room, shape = tensors[0].untyped_storage().nbytes() // tensors[0].element_size(), tensors[-1].shape
    shape = tensors[0].shape if writes else shape

    def through_memory(start: Tensor, *written: Tensor) -> Tensor:
        flat = start.new_zeros(room)
        for where, part in zip((own, *writes), (start, *written), strict=True):
            thin = part[tuple(slice(n) for n in where[0])]
            flat = flat.as_strided_scatter(thin, *where)
        return flat.as_strided(*seen).expand(shape).clone()

    return through_memory
