"""What is touched, and what is said: frozen parameters, and a word about every parameter."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import PlanError
from rekindle.graph.scan import scan
from rekindle.methods.kinds import scan_is_enough
from rekindle.methods.planning import graph_of, scan_tells_all
from rekindle.methods.registry import method
from rekindle.observe import STALE
from tests.graph.same_graph import Exports

X = torch.ones(3, 4)


@pytest.fixture
def exports(monkeypatch):
    return Exports(monkeypatch)


FROZEN = "frozen (requires_grad=False); frozen=True treats it"


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))


def backbone_frozen() -> nn.Sequential:
    model = net()
    for layer in (model[0], model[1]):
        layer.requires_grad_(False)
    return model


def why(record) -> dict[str, str]:
    return {skip.tensor: skip.reason for skip in record.skips}


@pytest.mark.parametrize("spec", ["fire", "shrink_perturb", "full_reset", "dirac_reset", "rescale", "dsd:scope=global"])
def test_frozen_parameters_stay_and_are_in_the_record(spec):
    model = backbone_frozen()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    record = rk.apply_(spec, model, example=X)
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed and not {name for name in changed if name.startswith(("0.", "1."))}
    assert "frozen" in why(record)["0.weight"] and record.changed


@pytest.mark.parametrize("spec", ["fire", "shrink_perturb", "full_reset"])
def test_frozen_parameters_are_treated_when_asked_for(spec):
    model, plain = backbone_frozen(), net()
    record = rk.apply_(spec, model, example=X, frozen=True)
    rk.apply_(spec, plain, example=X)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain.parameters(), strict=True))
    assert not any("frozen" in reason for reason in why(record).values())
    assert not model[0].weight.requires_grad


def test_a_boundary_leaves_frozen_parameters_alone():
    model = backbone_frozen()
    before = model[0].weight.clone()
    trained = [p for p in model.parameters() if p.requires_grad]
    keeper = rk.Keeper(model, torch.optim.Adam(trained), ["full_reset"], example=X)
    (record,) = keeper.boundary()
    assert torch.equal(model[0].weight, before) and why(record)["0.weight"] == FROZEN
    treats = rk.Keeper(model, None, ["full_reset"], example=X, frozen=True)
    treats.boundary()
    assert not torch.equal(model[0].weight, before)


def test_the_head_that_was_frozen_by_injection_stays_frozen_in_later_treatments():
    model = net()
    rk.plasticity_injection_(model, head="5")
    kept = model[5].frozen.weight.clone()
    record = rk.full_reset_(model)
    assert torch.equal(model[5].frozen.weight, kept)
    assert why(record)["5.frozen.weight"] == FROZEN and why(record)["5.twin.weight"] == FROZEN


def test_the_base_below_lora_stays():
    class Lora(nn.Module):
        """As PEFT has it: a frozen base and two small matrices beside it."""

        def __init__(self, base):
            super().__init__()
            self.base = base.requires_grad_(False)
            self.lora_a, self.lora_b = nn.Linear(base.in_features, 2, bias=False), nn.Linear(2, base.out_features)

        def forward(self, x):
            return self.base(x) + self.lora_b(self.lora_a(x))

    model = nn.Sequential(Lora(nn.Linear(4, 6)), nn.ReLU(), Lora(nn.Linear(6, 2)))
    before = [model[0].base.weight.clone(), model[2].base.weight.clone()]
    record = rk.fire_(model, example=X)
    assert torch.equal(before[0], model[0].base.weight) and torch.equal(before[1], model[2].base.weight)
    assert why(record)["0.base.weight"] == FROZEN
    assert {row.tensor for row in record.rows} >= {"0.lora_a.weight", "2.lora_b.weight"}


def test_what_belongs_to_a_frozen_tensor_under_weight_norm_stays_with_it():
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), nn.ReLU(), nn.Linear(3, 2))
    direction = model[0].parametrizations.weight.original1.requires_grad_(False)
    gain = model[0].parametrizations.weight.original0
    before = [direction.clone(), gain.clone()]
    record = rk.fire_(model, example=X)
    assert torch.equal(direction, before[0]) and torch.equal(gain, before[1])
    assert "goes with 0.parametrizations.weight.original1" in why(record)["0.parametrizations.weight.original0"]


class Reader(nn.Module):
    """A recurrent layer, a table of positions, and a target network that the forward pass does not use."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(5, 4))
        self.lstm = nn.LSTM(4, 6, batch_first=True)
        self.head = nn.Linear(6, 2)
        self.target = nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.lstm(x + self.table)[0])


ONE_SHOT = [card.key for card in rk.list_methods() if card.kind == "one-shot"]


@pytest.mark.filterwarnings("ignore::rekindle.errors.NoEffectWarning")
@pytest.mark.parametrize("example", [None, torch.ones(2, 5, 4)], ids=["scanned", "traced"])
@pytest.mark.parametrize("key", ONE_SHOT)
def test_every_parameter_is_in_every_record(key, example):
    model = Reader()
    initial = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    given = {"data": [torch.ones(2, 5, 4)], "loss": lambda net, batch: net(batch).square().mean()}
    settings = {"plasticity_injection": ":head=head", "layerwise": ":blocks=lstm|head", "fire": ":attention=all"}
    try:
        record = rk.apply_(f"{key}{settings.get(key, '')}", model, example=example, reference=initial, **given)
    except rk.RekindleError as refused:  # it says what it needs, and nothing was done
        assert example is None or key in ("layerwise", "mono_sparse", "doubly_sparse", "mutually_frozen"), refused
        return
    told = {row.tensor for row in record.rows} | {skip.tensor.partition("[")[0] for skip in record.skips}
    told |= {name for operation in record.surgery for name in operation.freezes}
    assert set(initial) - told == set()
    assert all(why(record).values())


def test_the_reasons_say_what_is_the_matter():
    record = rk.fire_(Reader(), example=torch.ones(2, 5, 4))
    reasons = why(record)
    assert "forward pass" in reasons["target.weight"]
    assert "vector" in reasons["head.bias"] or "fire" in reasons["head.bias"]
    assert reasons["table"] and reasons["lstm.bias_ih_l0"] and "lstm.weight_ih_l0" not in reasons


def test_a_state_dict_alone_is_refused():
    with pytest.raises(PlanError, match="graph= beside a state dict"):
        rk.apply_("full_reset", net().state_dict())


def test_an_optimizer_that_holds_none_of_the_model_s_parameters_is_refused():
    model, other = net(), net()
    before = model[0].weight.clone()
    with pytest.raises(PlanError, match="holds none of them"):
        rk.full_reset_(model, torch.optim.Adam(other.parameters()))
    assert torch.equal(model[0].weight, before)
    rk.full_reset_(model, torch.optim.Adam(model[0].parameters()))  # a part of them is common
    assert not torch.equal(model[0].weight, before)


def test_a_graph_of_another_structure_is_refused():
    model = net()
    graph = rk.trace(model, X)
    model.append(nn.Linear(2, 2))
    with pytest.raises(PlanError, match="one of another: 6.bias and 1 more differ"):
        rk.apply_("full_reset", model, graph=graph)


def test_a_state_dict_says_what_it_does_not_tell():
    model = net()
    record = rk.apply_("full_reset", {**model.state_dict(), "extra": torch.ones(3)}, graph=rk.trace(model, X))
    assert "does not tell which parameters are frozen" in record.notices[0]
    assert why(record)["extra"] == "not in the graph that was given"


@pytest.mark.parametrize("spec", ["full_reset", "welsr", "shrink_perturb"])
def test_a_parametrization_that_is_not_known_is_not_drawn(spec):
    from torch.nn.utils.parametrizations import orthogonal, spectral_norm

    model = nn.Sequential(orthogonal(nn.Linear(4, 6)), nn.ReLU(), spectral_norm(nn.Linear(6, 2)))
    before = model[0].weight.clone()
    record = rk.apply_(spec, model)
    assert torch.equal(model[0].weight, before)
    assert "initializer" in why(record)["0.parametrizations.weight.original"]
    assert "2.parametrizations.weight.original" in {row.tensor for row in record.rows}


# --- what is traced, and how often ---

WITHOUT_ROLES = [
    "shrink_perturb",
    "full_reset",
    "welsr",
    "wels",
    "dsd",
    "dsd:scope=global",
    "shrink_perturb + full_reset",
]


def plain() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 2))


@pytest.mark.parametrize("spec", WITHOUT_ROLES)
def test_nothing_is_traced_for_methods_that_need_no_roles(spec, exports):
    model, other = plain(), plain()
    other.load_state_dict(model.state_dict())
    planned = repr(rk.plan(spec, model, example=X).rows)
    record = rk.apply_(spec, model, example=X)
    assert exports.count == 0
    traced = rk.apply_(spec, other, graph=rk.trace(other, X))
    assert repr(record.rows) == repr(traced.rows) == planned
    assert (record.skips, record.notices) == (traced.skips, traced.notices)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("spec", ["welsr:which=weights", "fire", "shrink_perturb + fire", "dirac_reset"])
def test_a_model_is_traced_for_those_that_look_at_weights(spec, exports):
    rk.apply_(spec, plain(), example=X)
    assert exports.count == 1


@pytest.mark.parametrize(
    ("spec", "traces"),
    [("l2", 0), ("l2_init", 0), ("hare_tortoise", 0), ("l2:which=weights", 1), ("spectral", 1), ("redo", 1)],
)
def test_a_keeper_traces_only_for_methods_that_need_it(spec, traces, exports):
    model = plain()
    rk.Keeper(model, torch.optim.Adam(model.parameters()), spec, example=X).close()
    assert exports.count == traces


def test_a_boundary_traces_when_its_methods_need_it(exports):
    model = plain()
    keeper = rk.Keeper(model, None, ["l2", "shrink_perturb"], example=X)
    keeper.boundary()
    assert exports.count == 0
    (record,) = keeper.boundary(methods="head_reset")
    assert exports.count == 1 and [row.tensor for row in record.rows] == ["3.weight", "3.bias"]


def test_plan_treatment_audit_and_keeper_share_one_trace(exports):
    model = net()
    rk.plan("fire", model, example=X)
    rk.fire_(model, example=X)
    rk.apply_("fire + rescale", model, example=X)
    rk.audit(model, example=X)
    keeper = rk.Keeper(model, torch.optim.Adam(model.parameters()), ["redo", "head_reset"], example=X)
    keeper.boundary()
    rk.trace(model, X)
    keeper.close()
    rk.Keeper(model, None, ["spectral"], example=X).boundary(methods="dirac_reset")
    assert exports.count == 1


class Norm(nn.Module):
    """Of no class that is known; only a trace tells that its scale starts at one."""

    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return nn.functional.rms_norm(x, (x.shape[-1],), self.scale)


class WithTarget(nn.Module):
    def __init__(self):
        super().__init__()
        self.online, self.target = (nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)) for _ in range(2))

    def forward(self, x):
        return self.online(x)


class OwnLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4))

    def reset_parameters(self):
        nn.init.normal_(self.weight)

    def forward(self, x):
        return x @ self.weight.t()


TELLING = {
    "an initializer": lambda: nn.Sequential(nn.Linear(4, 6), Norm(6), nn.Linear(6, 2)),
    "a copy": WithTarget,
    "a matrix": OwnLayer,
}


@pytest.mark.parametrize("make", TELLING.values(), ids=TELLING)
def test_where_a_trace_tells_more_the_model_is_traced_and_the_record_has_it(make, exports):
    model, other = make(), make()
    other.load_state_dict(model.state_dict())
    assert not scan_tells_all(scan(model), model)
    record = rk.apply_("shrink_perturb", model, example=X)
    assert exports.count == 1
    traced = rk.apply_("shrink_perturb", other, graph=rk.trace(other, X, strict=False))
    assert repr(record.rows) == repr(traced.rows)
    assert (record.skips, record.notices) == (traced.skips, traced.notices)


def test_statistics_are_called_stale_where_they_are():
    """A scan does not know; where it would say so to be safe, a trace decides."""
    spec = "shrink_perturb:skip=0.*|1.*|3.*"
    assert rk.apply_("shrink_perturb", net(), example=X).notices == (STALE,)
    assert rk.apply_(spec, net(), example=X).notices == ()
    assert rk.apply_(spec, net()).notices == (STALE,), "without an example nothing is known"
    assert rk.apply_("full_reset", net(), example=X).notices == (), "statistics are set back too"


def test_a_model_that_cannot_be_followed_is_treated_by_methods_that_need_no_roles():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = net()

        def forward(self, x):
            return self.inner(x) if float(x.sum().tanh()) < 5 else x

    model = Odd()
    record = rk.apply_("shrink_perturb", model, example=X)
    assert record.changed and record.notices == (STALE,)


def test_what_a_method_says_of_itself():
    said = {card.key: scan_is_enough(method(card.key)) for card in rk.list_methods()}
    assert {key for key, enough in said.items() if enough} == {
        "dsd",
        "full_reset",
        "hare_tortoise",
        "l2",
        "l2_init",
        "shrink_perturb",
        "wels",
        "welsr",
    }
    assert not scan_is_enough(object()), "who says nothing is given a traced model"
    assert graph_of(plain(), X, methods=[object()]).traced and graph_of(plain(), X).traced
    assert not graph_of(plain(), None).traced
