"""Parameters that are no plain floats: every public function treats the others and names these."""

import math
import warnings

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.graph.scan import scan
from rekindle.methods.kinds import kind_of
from rekindle.methods.registry import method, places
from tests.contract.odd_models import EMPTY, NOT_TRACED, ODD, PLAIN, X, Y, snapshot

EVERY = [pytest.param(kind, id=kind.name) for kind in (*PLAIN, *EMPTY, *ODD, *NOT_TRACED)]
NOT_TREATED = [pytest.param(kind, id=kind.name) for kind in (*EMPTY, *ODD, *NOT_TRACED)]
TRACED = [pytest.param(kind, id=kind.name) for kind in (*PLAIN, *EMPTY, *ODD)]
DATA = [(X, Y), (2 * X, Y)]
ACTING = {  # settings with which a method acts on a small model within a few steps
    "mutually_frozen": "mutually_frozen:probability=0.9",
    "selective_reinit": "selective_reinit:rate=0.25,period=1",
    "hare_tortoise": "hare_tortoise:period=2",
    "redo": "redo:threshold=0.99,period=1",
    "regrama": "regrama:threshold=0.99,period=2",
    "cbp": "cbp:maturity=1,rate=0.5",
    "snr": "snr:period=1",
}
pytestmark = pytest.mark.filterwarnings("ignore")


def keys(*kinds: str) -> list[str]:
    return [key for key in places() if kind_of(method(key)) in kinds]


@pytest.fixture(scope="module")
def graphs():
    """Traced once for each kind; scanned where torch.export cannot follow."""
    found = {}

    def graph_of(kind):
        if kind not in found:
            found[kind] = rk.trace(kind(), X, strict=False) if kind.traced else scan(kind())
        return found[kind]

    return graph_of


def told(kind, reasons) -> None:
    for name in kind.of if kind.said else ():
        assert kind.said in reasons[name], (name, reasons.get(name))


@pytest.mark.parametrize("kind", EVERY)
def test_the_graph_names_them(kind, graphs):
    graph = graphs(kind)
    assert set(graph.not_plain) == set(kind.of if kind.said else ())
    told(kind, graph.not_plain)
    told(kind, graph.uncovered)
    told(kind, scan(kind()).not_plain)
    assert not {weight.tensor for weight in graph.weights} & set(graph.not_plain)
    assert "up.weight" in {weight.tensor for weight in graph.weights} and "down.0.weight" in graph.initializers
    assert all(name in str(graph) for name in graph.not_plain)


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name) for kind in NOT_TRACED])
def test_where_it_cannot_be_traced_it_is_said_why_and_what_to_do(kind):
    with pytest.raises(rk.RekindleError, match="leave example= out") as caught:
        rk.trace(kind(), X)
    assert kind.of[0] in caught.value.got and kind.said in caught.value.got


@pytest.mark.parametrize("kind", TRACED)
def test_what_is_left_is_proved(kind, graphs):
    found = graphs(kind).verify(kind(), X)
    assert "down.0" in found.proved


@pytest.mark.parametrize("kind", EVERY)
def test_one_shot_methods_treat_the_others_and_name_these(kind, graphs):
    graph, start = graphs(kind), snapshot(kind())
    acted = []
    for key in keys("one-shot"):
        model = kind()
        given = dict(
            graph=graph, data=DATA, reference=kind(seed=1), frozen=True, **({"example": X} if kind.traced else {})
        )
        try:
            plan = rk.plan(ACTING.get(key, key), model, **given)
            record = rk.apply_(ACTING.get(key, key), model, torch.optim.SGD(model.up.parameters(), lr=0.1), **given)
        except rk.RekindleError as error:
            assert not kind.traced and "example=" in error.expected + error.got, (key, error)
            assert all(torch.equal(now, start[name]) for name, now in snapshot(model).items())
            continue
        told(kind, {skip.tensor: skip.reason for skip in record.skips})
        told(kind, {skip.tensor: skip.reason for skip in plan.skips})
        assert not {row.tensor for row in record.rows} & set(graph.not_plain), key
        assert all(math.isfinite(row.sfe + row.norm_after + (row.dfi_after or 0)) for row in record.rows), key
        assert str(plan) and str(record)
        after = snapshot(model)
        assert all(torch.equal(after[name], start[name]) for name in graph.not_plain if name in start), key
        acted += [key] if record.changed or record.surgery else []
        record.undo()
        assert all(torch.equal(now, start[name]) for name, now in snapshot(model).items()), key
    assert {"full_reset", "shrink_perturb", "dsd"} <= set(acted)
    assert not kind.traced or len(acted) == len(keys("one-shot"))


def train(kind, methods, graph, steps=3):
    """Steps of a training beside a Keeper that treats frozen parameters too."""
    model = kind()
    trained = [p for name, p in model.named_parameters() if p.requires_grad and name not in graph.not_plain]
    optimizer = torch.optim.SGD(trained, lr=0.01)
    keeper = rk.Keeper(model, optimizer, methods, graph=graph, example=X if kind.traced else None, frozen=True)
    start = snapshot(model)
    for _ in range(steps):
        optimizer.zero_grad()
        (nn.functional.cross_entropy(model(X), Y) + keeper.penalty()).backward()
        optimizer.step()
        keeper.step()
    told(kind, keeper.skipped)
    after = snapshot(model)
    assert all(torch.equal(after[name], start[name]) for name in graph.not_plain if name in start)
    assert all(bool(torch.isfinite(after[name]).all()) for name in ("up.weight", "down.0.weight"))
    keeper.load_state_dict(keeper.state_dict())
    keeper.rebase()
    return keeper


@pytest.mark.parametrize("kind", EVERY)
def test_per_step_methods_and_boundaries(kind, graphs):
    methods = [ACTING.get(key, key) for key in keys("per-step") if kind.traced or key != "soft_rescale"]
    keeper = train(kind, [*methods, "full_reset"], graphs(kind))
    (record,) = keeper.boundary(DATA)
    assert record.changed
    told(kind, {skip.tensor: skip.reason for skip in record.skips})
    keeper.close()


@pytest.mark.parametrize("kind", TRACED)
def test_recyclers(kind, graphs):
    for key in keys("recycler"):
        keeper = train(kind, ACTING[key], graphs(kind))
        assert "down.0" in keeper.recycled or key not in ("redo", "regrama", "cbp"), key
        written = {name for record in keeper.records for name in record.tensors}
        assert not written & set(graphs(kind).not_plain), key
        keeper.close()


@pytest.mark.parametrize("kind", EVERY)
def test_optimizers(kind, graphs):
    for key in keys("optimizer"):
        model = kind()
        try:
            optimizer = getattr(rk, key)(model, example=X if kind.traced else None)
        except rk.RekindleError as error:
            told(kind, {name: error.got for name in kind.of})
            assert kind.said in ("sparse_coo", "sparse_csr", "share memory")
            continue
        model(X).square().sum().backward()
        optimizer.step()


METRICS = [card.key for card in rk.list_metrics() if card.key != "trainability"]  # which takes two seconds


@pytest.mark.parametrize("kind", EVERY)
def test_metrics_and_audit(kind, tmp_path):
    model, before = kind(), snapshot(kind())
    found = rk.audit(model, DATA if kind.traced else None, metrics=METRICS, reference=kind())
    told(kind, found.left_out)
    told(kind, found.readings["weight_norm"].details["left_out"])
    told(kind, found.readings["distance_from_init"].details["left_out"])
    assert {"dfi", "weight_norm", "sfe", "spectrum"} <= set(found.readings)
    assert math.isfinite(found.readings["dfi"].summary + found.readings["weight_norm"].summary)
    assert all(name in str(found) for name in found.left_out) and found.to_html(tmp_path / "audit.html").exists()
    assert all(torch.equal(now, before[name]) for name, now in snapshot(model).items())


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name) for kind in ODD[:5]])
def test_the_probe_trains_the_others(kind):
    found = rk.audit(kind(), DATA, metrics=["trainability"])
    assert set(kind.of) <= set(found.readings["trainability"].details["not_fresh"])


def entries(kind) -> dict[str, str]:
    """Return what is said of the entries of a state dict."""
    return dict.fromkeys(kind.of, "no tensor but a tuple" if "packed" in kind.said else kind.said)


@pytest.mark.parametrize("kind", NOT_TREATED)
def test_state_dicts_and_files(kind, tmp_path):
    state = kind().state_dict()
    sources = [state]
    if kind.name not in ("own class", "jagged", "nested", "quantized module"):  # torch.save takes the others
        torch.save(state, tmp_path / "model.pt")
        sources.append(tmp_path / "model.pt")
    for source in sources:
        try:
            found = rk.audit(source)
        except rk.RekindleError as error:
            assert error.fix and source is not state, error
            continue
        for name, said in entries(kind).items():
            assert said in found.left_out[name]
        assert "up.weight" in found.readings["weight_norm"].parts


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name) for kind in (*EMPTY, *ODD)])
def test_a_treated_state_dict_is_the_treated_model(kind, graphs):
    model, state = kind(), dict(kind().state_dict())
    record = rk.apply_("full_reset", model, graph=graphs(kind))
    of_state = rk.apply_("full_reset", state, graph=graphs(kind))
    assert record.changed == of_state.changed > 0
    told(kind, {skip.tensor: skip.reason for skip in of_state.skips})
    assert torch.equal(state["up.weight"], model.up.weight)


@pytest.mark.parametrize("kind", EVERY)
def test_recalibrate_and_restore(kind):
    model = kind()
    assert rk.recalibrate_(model, [X]).changed
    other = kind()
    state = model.state_dict()
    if kind.name == "jagged":  # two jagged tensors have the same shape for torch only if one was made from the other
        state["weight"] = other.weight.detach()
    try:
        rk.restore_(other, state)
    except rk.RekindleError as error:
        assert kind.name in ("expanded", "overlapping", "nested"), error
        assert torch.equal(other.norm.running_mean, torch.zeros(6))
    else:
        assert torch.equal(other.norm.running_mean, model.norm.running_mean)


def test_compare_says_what_it_cannot_copy():
    for kind in (ODD[0], EMPTY[0]):
        assert rk.compare(kind(), DATA, DATA, methods=["full_reset"], budget=2, seeds=2)
    with pytest.raises(rk.RekindleError, match="nested"):
        rk.compare(NOT_TRACED[3](), DATA, DATA, methods=["full_reset"], budget=2, seeds=2)


# --- models without values ---


def test_a_model_on_the_meta_device_is_traced_and_planned_and_nothing_else():
    model = PLAIN[0]().to("meta")
    graph = rk.trace(model, X)  # the example is moved along
    assert [group.name for group in graph.groups] == [group.name for group in rk.trace(PLAIN[0](), X).groups]
    for key in keys("one-shot"):
        if key not in ("dash", "layerwise"):  # these run the model
            plan = rk.plan(ACTING.get(key, key), model, graph=graph, example=X)
            assert plan.surgery or "nothing can be carried out" in str(plan)
        with pytest.raises(rk.RekindleError, match="meta device"):
            rk.apply_(ACTING.get(key, key), model, graph=graph, example=X, data=DATA)
    for call in (
        lambda: graph.verify(model, X),
        lambda: rk.audit(model),
        lambda: rk.audit(model.state_dict()),
        lambda: rk.Keeper(model, None, "l2"),
        lambda: rk.recalibrate_(model, [X.to("meta")]),
        lambda: rk.restore_(model, PLAIN[0]().state_dict()),
        lambda: rk.compare(model, DATA, DATA, methods=["full_reset"], budget=2, seeds=2),
        lambda: rk.apply_("full_reset", PLAIN[0](), reference=model),
    ):
        with pytest.raises(rk.RekindleError, match="meta device"):
            call()
    assert all(parameter.is_meta for parameter in model.parameters())


def test_a_lazy_layer_asks_for_a_batch_first():
    model = nn.Sequential(nn.LazyLinear(6), nn.ReLU(), nn.Linear(6, 3))
    for call in (
        lambda: rk.trace(model, X),
        lambda: scan(model),
        lambda: rk.audit(model),
        lambda: rk.audit(model.state_dict()),
        lambda: rk.plan("full_reset", model),
        lambda: rk.apply_("fire", model, example=X),
        lambda: rk.Keeper(model, None, "l2"),
        lambda: rk.muon(model),
        lambda: rk.recalibrate_(model, [X]),
        lambda: rk.restore_(model, {}),
        lambda: rk.apply_("full_reset", nn.Linear(6, 3), reference=model),
    ):
        with pytest.raises(rk.RekindleError, match="run a batch first"):
            call()
    model(X)
    assert rk.apply_("full_reset", model).changed


# --- a frozen base of whole numbers with adapters ---


class Adapted(nn.Module):
    """A linear layer of int8 with its scale, frozen, and a trained update of low rank."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        codes = torch.arange(inputs * outputs).reshape(outputs, inputs) * 7 % 19 - 9
        self.weight = nn.Parameter(codes.to(torch.int8), requires_grad=False)
        self.scale = nn.Parameter(torch.full((outputs, 1), 0.1), requires_grad=False)
        self.a, self.b = nn.Linear(inputs, 2, bias=False), nn.Linear(2, outputs, bias=False)

    def forward(self, x):
        return nn.functional.linear(x, self.weight.to(x.dtype) * self.scale) + self.b(self.a(x))


def adapted() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Adapted(4, 6), nn.ReLU(), Adapted(6, 3))


@pytest.mark.parametrize("spec", ["fire", "full_reset", "shrink_perturb", "dash", "rescale", "fire+rescale"])
def test_adapters_are_treated_and_the_base_stays(spec):
    model, before = adapted(), snapshot(adapted())
    record = rk.apply_(spec, model, example=X, data=DATA)
    changed = {name for name, now in snapshot(model).items() if not torch.equal(now, before[name])}
    assert changed == {f"{layer}.{part}.weight" for layer in "02" for part in "ab"}
    why = {skip.tensor: skip.reason for skip in record.skips}
    assert "int8" in why["0.weight"] and "int8" in why["2.weight"]


def test_rescaling_fits_adapters_around_the_base():
    model = adapted()
    with torch.no_grad():
        model[0].a.weight.mul_(4.0)
    before = model(X)
    assert rk.apply_("rescale", model, example=X).changed
    after = model(X)
    assert torch.allclose(after, before * float(after.norm() / before.norm()), atol=1e-5)


def test_with_frozen_true_the_base_stays_all_the_same():
    model, before = adapted(), snapshot(adapted())
    record = rk.apply_("full_reset", model, reference=adapted(), frozen=True)
    assert "int8" in {skip.tensor: skip.reason for skip in record.skips}["0.weight"]
    assert torch.equal(snapshot(model)["0.weight"], before["0.weight"])


def test_a_model_of_which_nothing_can_be_treated_says_so():
    model = nn.Linear(3, 2, dtype=torch.complex64)
    with pytest.warns(rk.NoEffectWarning, match="complex64"):
        warnings.simplefilter("always")
        rk.apply_("full_reset", model)
    with pytest.raises(rk.errors.KeeperError, match="complex64"):
        rk.Keeper(model, None, "l2")
