"""What every one-shot method promises, as checks on a method and a zoo model; run by `contract.check_method`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree

from rekindle.edits.compute import compute
from rekindle.edits.edit import Edits
from rekindle.errors import EditError, NoEffectWarning
from rekindle.graph.calls.inputs import as_call
from rekindle.graph.modules import parameters_of, tensors_of
from rekindle.graph.scan import scan
from rekindle.methods.apply import apply_, plan
from rekindle.methods.kinds import scan_is_enough
from rekindle.methods.planning import scan_tells_all
from rekindle.testing.aged import (
    Check,
    OneAtATime,
    aged,
    amsgrad,
    bits,
    graph_of,
    hooks_of,
    initial,
    learn,
    memory,
    overwrite,
    rank_one,
    regions,
    same,
    sgd,
)
from rekindle.testing.zoo import ZooModel


def check_touches_only_what_is_planned(method: Any, member: ZooModel) -> None:
    """Outside the planned regions every bit stays; a plan writes nothing, and shows what will be done."""
    model, graph, _ = aged(member)
    before = bits(model)
    planned = plan(method, model, graph=graph, **supply(method, member))
    foreseen = planned.rows
    same(before, bits(model), "planning wrote")
    planned_in = regions(planned.edits, tensors_of(model))
    live = tensors_of(model)  # a change of structure may give them other names
    record = apply_(method, model, graph=graph, **supply(method, member))
    assert repr(record.rows) == repr(foreseen), "what was done is not what the plan shows"  # NaN is no == NaN
    assert record.surgery or set(live) == set(bits(model)), "tensors came or went without an operation"
    for name, after in live.items():
        outside = ~planned_in[name] if name in planned_in else torch.ones_like(after, dtype=torch.bool)
        assert torch.equal(after[outside], before[name][outside]), f"{name} changed outside the plan"
        assert torch.isfinite(after).all(), f"{name} is not finite"


def check_identity_changes_nothing(method: Any, member: ZooModel) -> None:
    """With its identity settings a method warns and leaves weights and moments alone."""
    model, graph, optimizer = aged(member)
    before, moments = bits(model), memory(model, optimizer)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        record = apply_(type(method)(**method.identity), model, optimizer, graph=graph, **supply(method, member))
    assert any(issubclass(w.category, NoEffectWarning) for w in heard), "a plan without effect did not warn"
    assert record.changed == 0, f"identity settings changed {record.changed} values by the record"
    same(before, bits(model), "identity settings changed")
    same(moments, memory(model, optimizer), "identity settings cleared")


def check_same_seed_same_result(method: Any, member: ZooModel) -> None:
    """The result depends on the seed alone, and torch's own generator is not touched."""
    results = []
    for noise in (1, 2):
        model, graph, _ = aged(member)
        torch.manual_seed(noise)
        state = torch.get_rng_state()
        apply_(method, model, graph=graph, seed=5, **supply(method, member))
        assert torch.equal(state, torch.get_rng_state()), "the global generator was used"
        results.append(bits(model))
    same(results[0], results[1], "differs between two runs with one seed:")


def check_three_ways_agree(method: Any, member: ZooModel) -> None:
    """A live model, a state dict and tensors read one at a time get bit-equal results.

    A method that changes the structure has only the live model.
    """
    if method.card.structural:
        return
    model, graph, _ = aged(member)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    stored = OneAtATime({name: tensor.clone() for name, tensor in tensors_of(model).items()})
    given = supply(method, member)
    edits = plan(method, model, graph=graph, seed=3, **given).edits
    streamed = {change.tensor: change.new for change in compute(edits, stored)}
    apply_(method, model, graph=graph, seed=3, **given)
    apply_(method, state, graph=graph, seed=3, **given)
    live = model.state_dict()
    same({n: live[n] for n in state}, state, "differs between model and state dict:")
    same({n: live[n] for n in streamed}, streamed, "differs between model and stream:")


def check_a_scan_is_enough_where_it_says_so(method: Any, member: ZooModel) -> None:
    """A method that needs no trace plans and records the same for a scanned model as for a traced one, bit by bit.

    Models of which a trace would tell it more are left out: they are traced, see `scan_tells_all`.
    """
    model, graph, _ = aged(member)
    scanned = scan(model)
    if not scan_is_enough(method) or not scan_tells_all(scanned, model):
        return
    given, known = supply(method, member), tensors_of(model)
    one, other = (plan(method, model, graph=each, seed=3, **given) for each in (graph, scanned))
    new = [{change.tensor: change.new for change in compute(each.edits, known)} for each in (one, other)]
    same(new[0], new[1], "needs a trace, though it says that a scan is enough: differs in")
    told = [({(skip.tensor, skip.reason) for skip in each.skips}, each.content.notices) for each in (one, other)]
    assert told[0] == told[1], "says something else of a scanned model, though it says that a scan is enough"


def check_optimizer_state_begins_again_where_edited(method: Any, member: ZooModel) -> None:
    """State of tensors edited whole is gone, of others zero where edited and bit-equal elsewhere; steps go on."""
    for make in (sgd, torch.optim.Adam, amsgrad):
        model, graph, optimizer = aged(member, make)
        planned = plan(method, model, graph=graph, **supply(method, member))
        stale = regions([edit for edit in planned.edits if edit.clear_moments], tensors_of(model))
        remembered = memory(model, optimizer)
        apply_(method, model, optimizer, graph=graph, **supply(method, member))
        after = memory(model, optimizer)
        whole = {name for name, region in stale.items() if region.all()}
        left = {name.partition("|")[0] for name in after}
        assert not whole & left, f"state of {sorted(whole & left)} was kept, though all of it was edited"
        for name, kept in after.items():
            region = stale.get(name.partition("|")[0])
            inside = torch.zeros_like(kept, dtype=torch.bool) if region is None or not kept.dim() else region
            assert not kept[inside].any(), f"{name} was not cleared"
            assert torch.equal(kept[~inside], remembered[name][~inside]), f"{name} was cleared outside the plan"
        learn(model, member.example(), optimizer)
        for name, tensor in bits(model).items():
            assert torch.isfinite(tensor).all(), f"{name} breaks in the next step"


def check_every_parameter_is_told_of(method: Any, member: ZooModel) -> None:
    """Every parameter is in the record: edited, frozen by surgery, or skipped with a reason."""
    model, graph, _ = aged(member)
    record = apply_(method, model, graph=graph, **supply(method, member))
    told = {row.tensor for row in record.rows} | {skip.tensor.partition("[")[0] for skip in record.skips}
    told |= {name for operation in record.surgery for name in operation.freezes}
    silent = [name for name in graph.parameters if name not in told]
    assert not silent, f"the record says nothing of {silent}"
    assert all(skip.reason for skip in record.skips), "a skip without a reason"


def check_frozen_parameters_stay(method: Any, member: ZooModel) -> None:
    """Frozen parameters keep every bit, and the record says so."""
    model, graph, _ = aged(member)
    still = list(parameters_of(model).items())[::2]
    for _, parameter in still:
        parameter.requires_grad_(False)
    before = bits(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoEffectWarning)
        record = apply_(method, model, graph=graph, **supply(method, member))
    told = {skip.tensor.partition("[")[0] for skip in record.skips}
    told |= {name for operation in record.surgery for name in operation.freezes}
    for name, parameter in still:
        assert torch.equal(parameter.detach(), before[name]), f"{name} is frozen and was changed"
        assert name in told, f"the record does not say that {name} stays"


def check_parameters_keep_their_identity(method: Any, member: ZooModel) -> None:
    """Objects, dtype, device, requires_grad, gradients, memory layout, mode and hooks are what they were."""
    model, graph, _ = aged(member)
    first = next(model.parameters())
    first.requires_grad_(False)
    live, modules = tensors_of(model), dict(model.named_modules())
    before = {n: [id(t), t.dtype, t.device, t.stride(), t.requires_grad] for n, t in live.items()}
    grads = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    mode, hooked = {n: m.training for n, m in modules.items()}, {n: hooks_of(m) for n, m in modules.items()}
    record = apply_(method, model, graph=graph, **supply(method, member))
    frozen = {name for operation in record.surgery for name in operation.freezes}
    operated = {operation.module for operation in record.surgery}
    resting = [n for n in modules for path in operated if frozen and f"{n}.".startswith(f"{path}.")]
    for name in frozen:
        before[name][-1] = False
    after = {n: [id(t), t.dtype, t.device, t.stride(), t.requires_grad] for n, t in _objects(model, live).items()}
    assert before == after, "a parameter was replaced or changed its kind"
    assert all(mode[n] == m.training for n, m in modules.items() if n not in resting), "training mode changed"
    assert all(hooked[n] == hooks_of(m) for n, m in modules.items() if n not in operated), "a hook was left behind"
    kept = {n: live[n].grad for n in grads if n not in frozen}
    same({n: grads[n] for n in kept}, {n: g for n, g in kept.items() if g is not None}, "gradient changed:")


def check_degenerate_weights_stay_finite(method: Any, member: ZooModel) -> None:
    """Zero, rank-one and bfloat16 weights have a finite result."""
    for spoil in (torch.zeros_like, rank_one):
        model, graph, _ = aged(member)
        overwrite(model, spoil)
        apply_(method, model, graph=graph, **supply(method, member))
        for name, tensor in bits(model).items():
            assert torch.isfinite(tensor).all(), f"{name} is not finite after {spoil.__name__}"
    model, graph, _ = aged(member)
    model.to(torch.bfloat16)
    wide = {n: t.float() if t.is_floating_point() else t for n, t in bits(model).items()}
    edits = plan(method, model, graph=graph, **supply(method, member)).edits
    oracle = {change.tensor: change.new for change in compute(edits, wide)}
    apply_(method, model, graph=graph, **supply(method, member))
    for name, tensor in bits(model).items():
        assert torch.isfinite(tensor).all(), f"{name} is not finite in bfloat16"
        if name in oracle and tensor.is_floating_point():
            assert torch.equal(tensor, oracle[name].to(tensor.dtype)), f"{name} was not rounded once from float32"


def check_nan_is_refused(method: Any, member: ZooModel) -> None:
    """A NaN in a tensor that is to be edited is refused by name, and nothing is written."""
    model, graph, optimizer = aged(member)
    edited = [edit.tensor for edit in plan(method, model, graph=graph, **supply(method, member)).edits]
    if not edited:
        return
    victim = tensors_of(model)[edited[-1]]
    if not victim.is_floating_point():
        victim = tensors_of(model)[edited[0]]
    with torch.no_grad():
        victim.view(-1)[0] = float("nan")
    name = next(n for n, t in tensors_of(model).items() if t is victim)
    before, moments = bits(model), memory(model, optimizer)
    try:
        apply_(method, model, optimizer, graph=graph, **supply(method, member))
    except EditError as error:
        assert name in str(error), "the error does not name the tensor"
    else:
        raise AssertionError("NaN weights were accepted")
    same(before, bits(model), "changed in spite of the error:")
    same(moments, memory(model, optimizer), "moments changed in spite of the error:")


def check_a_late_failure_leaves_no_trace(method: Any, member: ZooModel) -> None:
    """When the last edit fails, nothing of the earlier ones was written."""
    model, graph, optimizer = aged(member)
    failing = _FailsAtTheEnd(method)
    before, moments = bits(model), memory(model, optimizer)
    try:
        apply_(failing, model, optimizer, graph=graph, **supply(method, member))
    except EditError:
        same(before, bits(model), "changed in spite of the error:")
        same(moments, memory(model, optimizer), "moments changed in spite of the error:")
    else:
        assert not failing.spoiled, "an edit with a wrong shape was accepted"


def check_undo(method: Any, member: ZooModel) -> None:
    """Undo brings every bit of weights and moments back."""
    model, graph, optimizer = aged(member)
    before, moments = bits(model), memory(model, optimizer)
    record = apply_(method, model, optimizer, graph=graph, **supply(method, member))
    assert str(record), "the record prints as nothing"
    record.undo()
    same(before, bits(model), "not undone:")
    same(moments, memory(model, optimizer), "moments not undone:")


ONE_SHOT: tuple[Check, ...] = (
    check_touches_only_what_is_planned,
    check_identity_changes_nothing,
    check_same_seed_same_result,
    check_three_ways_agree,
    check_a_scan_is_enough_where_it_says_so,
    check_optimizer_state_begins_again_where_edited,
    check_every_parameter_is_told_of,
    check_frozen_parameters_stay,
    check_parameters_keep_their_identity,
    check_degenerate_weights_stay_finite,
    check_nan_is_refused,
    check_a_late_failure_leaves_no_trace,
    check_undo,
)


class _FailsAtTheEnd:
    """A method whose last edit, if it has any, gives a tensor of the wrong shape."""

    kind = "one-shot"

    def __init__(self, method: Any) -> None:
        self.method, self.key = method, method.key
        self.spoiled = False

    def plan(self, graph: Any, evidence: Any, seed: int) -> Edits:
        """Plan as the method does, and spoil the last edit."""
        planned: Edits = self.method.plan(graph, evidence, seed)
        if not planned.edits:
            return planned
        self.spoiled = True
        last = replace(planned.edits[-1], op=lambda old, *_: torch.zeros(old.numel() + 1))
        return replace(planned, edits=(*planned.edits[:-1], last))


def _objects(model: Any, named: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return those of the named tensors that are objects in the model, under whatever name."""
    there = {id(tensor) for tensor in tensors_of(model).values()}
    return {name: tensor for name, tensor in named.items() if id(tensor) in there}


def supply(method: Any, member: ZooModel) -> dict[str, Any]:
    """Return what a method's card says that it needs, and initial weights where they cannot be drawn."""
    graph = graph_of(member)
    drawn = all(graph.has_initializer(name) for name in graph.parameters)
    given: dict[str, Any] = {}
    if not drawn or "reference" in method.card.needs:
        given["reference"] = dict(initial(member))
    if "data" in method.card.needs:
        example = member.example()
        given["data"] = [example, pytree.tree_map(lambda t: t[: len(t) // 2], example)]
    if "loss" in method.card.needs:
        given["loss"] = partial(_small_outputs, member=member)
    return given


def _small_outputs(model: Any, batch: Any, member: ZooModel) -> torch.Tensor:
    """Mean squared outputs; of a state dict too, which is put into a twin of the model."""
    net, state = (member.build(), dict(model)) if isinstance(model, Mapping) else (model, {})
    known = [t for t in (model.values() if state else model.parameters()) if t.requires_grad]
    batch = pytree.tree_map(lambda t: t.to(known[0].dtype) if t.is_floating_point() else t, batch)
    outputs = pytree.tree_leaves(torch.func.functional_call(net, state, *as_call(net, batch)))
    loss = torch.stack([x.square().mean() for x in outputs if torch.is_tensor(x) and x.is_floating_point()]).sum()
    # A network of zeros may have no finite output (weight_norm divides by them): then nothing has a direction.
    return loss if bool(torch.isfinite(loss)) else torch.stack([0 * tensor.sum() for tensor in known]).sum()
