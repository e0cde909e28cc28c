"""What every per-step method and recycler promises beside a training; run by `contract.check_method`."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from rekindle.errors import KeeperError, RekindleError
from rekindle.graph.calls.inputs import as_call
from rekindle.graph.scan import scan
from rekindle.keeper import Keeper
from rekindle.methods.kinds import scan_is_enough
from rekindle.methods.planning import scan_tells_all
from rekindle.methods.recycling import recyclable
from rekindle.testing.aged import Check, bits, graph_of, hooks, memory, same
from rekindle.testing.zoo import ZooModel

STEPS = 6  # within which a method acts, with the settings that it is checked with
Between = Callable[[nn.Module, Any], None]


class NothingToDo(Exception):
    """The Keeper refuses the method on this model, as it should where there is no unit to recycle."""


def keep(method: Any, member: ZooModel, *, seed: int = 3, **given: Any) -> tuple[nn.Module, Optimizer, Keeper]:
    """Return a model, its optimizer and a Keeper that has begun.

    Raises:
        NothingToDo: There is nothing to recycle.
    """
    model = member.build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    return model, optimizer, _keeper(method, member, model, optimizer, seed=seed, **given)


def _keeper(method: Any, member: ZooModel, model: nn.Module, optimizer: Optimizer, **given: Any) -> Keeper:
    try:
        known = {"graph": graph_of(member), **given}
        return Keeper(model, optimizer, [method], example=member.example(), **known)
    except KeeperError as error:
        if method.kind == "recycler" and "hidden units" in error.expected:
            assert not any(hooks(model)), "a hook was left behind by a Keeper that refused"
            raise NothingToDo from error
        raise


def loss_of(model: nn.Module, batch: Any) -> Tensor:
    """Return the mean squared outputs."""
    args, kwargs = as_call(model, batch)
    leaves = pytree.tree_leaves(model(*args, **kwargs))
    return torch.stack([x.square().mean() for x in leaves if torch.is_tensor(x) and x.is_floating_point()]).sum()


def train(
    model: nn.Module,
    optimizer: Optimizer,
    keeper: Keeper | None,
    batch: Any,
    steps: int,
    between: Between | None = None,
) -> None:
    """Train toward smaller outputs, with a Keeper or without."""
    for _ in range(steps):
        loss = loss_of(model, batch)
        if between is not None:
            between(model, batch)
        optimizer.zero_grad()
        (loss + (keeper.penalty() if keeper is not None else 0.0)).backward()
        optimizer.step()
        if keeper is not None:
            keeper.step()


def everything(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Return all values of a model and what its optimizer keeps of them."""
    return bits(model) | memory(model, optimizer)


def check_identity_changes_nothing(method: Any, member: ZooModel) -> None:
    """With its identity settings training goes as without the method."""
    plain = member.build()
    optimizer = torch.optim.Adam(plain.parameters(), lr=1e-2)
    train(plain, optimizer, None, member.example(), 3)
    with _unless_nothing():
        model, other, keeper = keep(type(method)(**method.identity), member)
        train(model, other, keeper, member.example(), 3)
        same(everything(plain, optimizer), everything(model, other), "identity settings changed")


def check_it_acts(method: Any, member: ZooModel) -> None:
    """With the settings given something is done within a few steps: otherwise the other checks prove nothing."""
    plain = member.build()
    optimizer = torch.optim.Adam(plain.parameters(), lr=1e-2)
    train(plain, optimizer, None, member.example(), STEPS)
    with _unless_nothing():
        model, other, keeper = keep(method, member)
        train(model, other, keeper, member.example(), STEPS)
        acted = any(not torch.equal(a, b) for a, b in zip(plain.parameters(), model.parameters(), strict=True))
        silent = method.kind == "recycler" and not keeper.recycled  # units that speak are left alone
        assert acted or silent, f"nothing is done within {STEPS} steps: give settings with which it acts"
        if method.kind == "recycler" and keeper.recycled:
            assert len(keeper.records) and all(record.units for record in keeper.records), "no record of a recycling"


def check_a_scan_is_enough_where_it_says_so(method: Any, member: ZooModel) -> None:
    """A method that needs no trace does the same on a scanned model as on a traced one, bit by bit."""
    scanned = scan(member.build())
    if not scan_is_enough(method) or not scan_tells_all(scanned, member.build()):
        return
    done = []
    for graph in (graph_of(member), scanned):
        model, optimizer, keeper = keep(method, member, graph=graph)
        train(model, optimizer, keeper, member.example(), STEPS)
        done.append(everything(model, optimizer))
    same(done[0], done[1], "needs a trace, though it says that a scan is enough: differs in")


def check_a_saved_state_goes_on_bit_equal(method: Any, member: ZooModel) -> None:
    """State dicts of model, optimizer and Keeper are all that it takes to go on; they load without pickle."""
    with _unless_nothing():
        whole = keep(method, member)
        train(*whole, member.example(), 3)
        file = io.BytesIO()
        torch.save([part.state_dict() for part in whole], file)
        train(*whole, member.example(), 3)
        file.seek(0)
        states = torch.load(file, weights_only=True)
        model = member.build()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        model.load_state_dict(states[0])
        optimizer.load_state_dict(states[1])
        keeper = _keeper(method, member, model, optimizer, seed=3)  # begins on weights that are not the first ones
        keeper.load_state_dict(states[2])
        train(model, optimizer, keeper, member.example(), 3)
        same(everything(*whole[:2]), everything(model, optimizer), "after resuming, another")
        assert keeper.recycled == whole[2].recycled, "after resuming, others were recycled"


def check_the_seed_decides_and_nothing_else(method: Any, member: ZooModel) -> None:
    """Two runs with one seed are equal, and torch's own generator is not touched by the Keeper."""
    with _unless_nothing():
        results = []
        for noise in (1, 2):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(noise)
                before = torch.get_rng_state()
                model, optimizer, keeper = keep(method, member)
                assert torch.equal(before, torch.get_rng_state()), "the global generator was used to begin"
                train(model, optimizer, keeper, member.example(), 3, _same_dropout)
                results.append(bits(model))
        same(results[0], results[1], "differs between two runs with one seed:")


def _same_dropout(model: nn.Module, batch: Any) -> None:
    torch.manual_seed(0)


def check_asking_for_the_penalty_changes_nothing(method: Any, member: ZooModel) -> None:
    """`penalty` only computes: weights are written by what `after_step` and `edits` return, and by nobody else."""
    with _unless_nothing():
        model, optimizer, keeper = keep(method, member)
        train(model, optimizer, keeper, member.example(), 1)
        before = everything(model, optimizer)
        for _ in range(2):
            keeper.penalty()
        same(before, everything(model, optimizer), "asking for the penalty changed")


def check_evaluation_is_not_counted(method: Any, member: ZooModel) -> None:
    """Passes without gradients between two steps change nothing of what is done."""

    def evaluate(model: nn.Module, batch: Any) -> None:
        model.eval()
        with torch.no_grad():
            loss_of(model, pytree.tree_map(lambda t: 1000 * t if t.is_floating_point() else t, batch))
        model.train()

    with _unless_nothing():
        results = []
        for between in (None, evaluate):
            model, optimizer, keeper = keep(method, member)
            train(model, optimizer, keeper, member.example(), 4, between)
            results.append(bits(model))
        same(results[0], results[1], "evaluation changed")


def check_frozen_parameters_stay(method: Any, member: ZooModel) -> None:
    """Frozen parameters keep every bit."""
    with _unless_nothing():
        model = member.build()
        still = [parameter.requires_grad_(False) for parameter in list(model.parameters())[::2]]
        before = [parameter.clone() for parameter in still]
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-3)
        train(model, optimizer, _keeper(method, member, model, optimizer), member.example(), 3)
        changed = [n for n, (old, new) in enumerate(zip(before, still, strict=True)) if not torch.equal(old, new)]
        assert not changed, f"{len(changed)} frozen parameters were changed"


def check_it_says_what_it_needs(method: Any, member: ZooModel) -> None:
    """Without an example it works, or the error says that it needs one; `needs` of the card is true."""
    model = member.build()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    try:
        keeper = Keeper(model, optimizer, [method])
    except RekindleError as error:
        assert "example" in str(error), f"the error does not say that an example is needed: {error}"
        assert "example" in method.card.needs, "it needs an example, and its card does not say so"
        return
    assert "example" not in method.card.needs, "its card says that it needs an example, and it works without"
    train(model, optimizer, keeper, member.example(), 2)
    assert all(torch.isfinite(p).all() for p in model.parameters()), "weights are not finite"


def check_no_hook_stays(method: Any, member: ZooModel) -> None:
    """After `close` the model has the hooks that it had, and the optimizer too."""
    with _unless_nothing():
        model, optimizer, keeper = keep(method, member)
        train(model, optimizer, keeper, member.example(), 1)
        keeper.close()
        assert not any(hooks(model)), "a hook was left on the model"


def check_every_group_is_treated_or_named(method: Any, member: ZooModel) -> None:
    """What cannot be recycled is in `keeper.skipped`, with the reason; of everything else something is known."""
    with _unless_nothing():
        _, _, keeper = keep(method, member)
        graph = graph_of(member)
        groups, left = recyclable(graph)
        assert set(left) <= set(keeper.skipped), f"not told of: {sorted(set(left) - set(keeper.skipped))}"
        assert all(keeper.skipped.values()), "a skip without a reason"
        covered = {s.tensor for group in graph.groups for s in (*group.incoming, *group.norms, *group.outgoing)}
        silent = set(graph.parameters) - covered - set(keeper.skipped)
        assert not silent, f"nothing is said of {sorted(silent)}"


class _unless_nothing:
    """A context in which a Keeper that has nothing to recycle ends the check: refusing is what it should do."""

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> bool:
        """Swallow that one refusal."""
        return kind is NothingToDo


PER_STEP: tuple[Check, ...] = (
    check_identity_changes_nothing,
    check_it_acts,
    check_a_scan_is_enough_where_it_says_so,
    check_a_saved_state_goes_on_bit_equal,
    check_the_seed_decides_and_nothing_else,
    check_frozen_parameters_stay,
    check_it_says_what_it_needs,
    check_asking_for_the_penalty_changes_nothing,
    check_no_hook_stays,
)
RECYCLER: tuple[Check, ...] = (*PER_STEP, check_evaluation_is_not_counted, check_every_group_is_treated_or_named)
