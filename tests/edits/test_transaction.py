"""Weights, structure and optimizer state are one: prepared, then written as a whole, then taken back as a whole."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.edits.edit import Edit, Edits
from rekindle.edits.surgery import Surgery, Twins
from rekindle.edits.transaction import prepare, undo
from rekindle.errors import EditError, PlanError


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


def trained():
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(5, 4)).square().sum().backward()
    optimizer.step()
    return model, optimizer


def halve(name, **given) -> Edit:
    return Edit(name, lambda old: old / 2, "test", **given)


def values(model) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in model.state_dict().values()]


def equal(one, other) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_prepare_writes_nothing_and_commit_writes_all():
    model, optimizer = trained()
    before, kept = values(model), len(optimizer.state)
    content = Edits((halve("0.weight"), halve("2.bias")), surgery=(Surgery("2", Twins("2"), ("2.weight",), "test"),))
    transaction = prepare(content, model, optimizers=[optimizer])
    assert equal(values(model), before) and len(optimizer.state) == kept and not transaction.finished
    transaction.commit()
    assert transaction.finished and [row.tensor for row in transaction.rows] == ["0.weight", "2.bias"]
    assert torch.equal(model[0].weight, before[0] / 2) and model[0].weight not in optimizer.state
    assert model[2].new.weight.requires_grad and not model[2].frozen.weight.requires_grad
    undo([transaction])
    assert equal(values(model), before) and len(optimizer.state) == kept


@pytest.mark.parametrize("broken", ["shape", "surgery", "state"])
def test_what_does_not_fit_is_found_before_the_first_write(broken):
    model, optimizer = trained()
    before = values(model)
    edits, surgery = [halve("0.weight")], ()
    if broken == "shape":
        edits.append(Edit("2.weight", lambda old: old[:1], "test"))
    elif broken == "surgery":
        surgery = (Surgery("7", Twins("7"), (), "test"),)
    else:
        optimizer.state[model[0].weight]["unheard_of"] = torch.zeros(3)
    with pytest.raises((EditError, PlanError)):
        prepare(Edits(tuple(edits), surgery=surgery), model, optimizers=[optimizer])
    assert equal(values(model), before)


def test_without_old_values_commit_goes_on_where_it_stopped():
    model, optimizer = trained()
    before = values(model)
    times = []

    def once_interrupted(old):
        times.append(1)
        if len(times) == 2:  # computed once to check, then to write
            raise KeyboardInterrupt
        return old / 2

    content = Edits((halve("0.weight"), Edit("2.weight", once_interrupted, "test"), halve("2.bias")))
    transaction = prepare(content, model, optimizers=[optimizer], keep=False)
    with pytest.raises(KeyboardInterrupt):
        transaction.commit()
    assert transaction.begun and not transaction.finished and transaction.written == ["0.weight"]
    transaction.commit()
    assert transaction.finished
    assert equal(values(model), [before[0] / 2, before[1], before[2] / 2, before[3] / 2])


def test_tied_tensors_in_a_state_dict_are_written_under_both_names():
    shared = torch.ones(2)
    state = {"a": shared.clone(), "b": shared.clone()}
    prepare(Edits((halve("a"),)), state, aliases={"a": ("b",)}).commit()
    assert torch.equal(state["a"], state["b"]) and state["b"][0] == 0.5


def test_links_of_one_treatment_are_taken_back_last_first_and_each_alone():
    model, optimizer = trained()
    keeper = rk.Keeper(model, optimizer, ["shrink_perturb", "dirac_reset"])
    before = values(model)
    first, second = keeper.boundary()
    with pytest.raises(EditError, match="written or replaced since"):
        first.undo()
    second.undo()
    assert not equal(values(model), before)
    first.undo()
    assert equal(values(model), before)


def test_links_about_different_tensors_are_independent():
    model, _ = trained()
    before = values(model)
    one, other = (prepare(Edits((halve(name),)), model) for name in ("0.weight", "2.weight"))
    for each in (one, other):
        each.commit()
    undo([one])
    assert torch.equal(model[0].weight, before[0]) and torch.equal(model[2].weight, before[2] / 2)
    with torch.no_grad():
        model[2].weight.add_(1)
    with pytest.raises(EditError, match="1 of 1 written or replaced since"):
        undo([other])
    undo([other], force=True)
    assert equal(values(model), before)


FAST = {
    "fused Adam": lambda p: torch.optim.AdamW(p, fused=True),
    "fused SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "by .data": None,
}


@pytest.mark.parametrize("way", FAST)
def test_undo_notices_training_that_torch_does_not_count(way):
    model = net()
    optimizer = FAST[way](model.parameters()) if FAST[way] else None
    record = rk.apply_("fire", model, optimizer, example=torch.ones(1, 4))
    if optimizer is None:
        model[0].weight.data.add_(0.1)
    else:
        model(torch.ones(5, 4)).square().sum().backward()
        optimizer.step()
    before = values(model)
    with pytest.raises(EditError, match="written or replaced since"):
        record.undo()
    assert equal(values(model), before)


def assign(model, optimizer):
    model.load_state_dict({name: tensor.clone() for name, tensor in model.state_dict().items()}, assign=True)


def load_optimizer(model, optimizer):
    optimizer.load_state_dict(optimizer.state_dict())


def replace_module(model, optimizer):
    model[2] = nn.Linear(3, 2)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("change", [assign, load_optimizer, replace_module])
def test_undo_that_would_reach_nothing_is_refused(change, force):
    model, optimizer = trained()
    record = rk.full_reset_(model, optimizer)
    change(model, optimizer)
    with pytest.raises(EditError, match="others in their places"):
        record.undo(force=force)


def test_treatments_are_undone_one_after_the_other():
    model, _ = trained()
    before = values(model)
    first = rk.fire_(model, example=torch.ones(1, 4))
    second = rk.full_reset_(model)
    with pytest.raises(EditError, match="written or replaced since"):
        first.undo()
    second.undo()
    first.undo()
    assert equal(values(model), before)


def test_the_record_of_half_precision_is_that_of_the_stored_values():
    model = net().to(torch.bfloat16)
    before = values(model)
    with pytest.warns(rk.NoEffectWarning, match="stays as it is"):
        record = rk.apply_("shrink_perturb:shrink=0.00001", model)
    assert record.changed == 0 and equal(values(model), before)
    record = rk.apply_("rescale:proportional=false", model, example=torch.ones(1, 4, dtype=torch.bfloat16))
    for row in record.rows:
        assert row.norm_after == pytest.approx(float(model.state_dict()[row.tensor].float().norm()), rel=1e-6)


def test_tensors_without_values_are_refused():
    with torch.device("meta"):
        model = net()
    with pytest.raises(EditError, match="meta device"):
        rk.full_reset_(model)
