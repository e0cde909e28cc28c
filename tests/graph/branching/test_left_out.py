"""Models that branch on data: what branches is left out by name, the rest is traced, and no group is guessed."""

import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import rekindle as rk
from rekindle.errors import GraphError
from rekindle.graph.calls.inputs import as_call
from rekindle.graph.export import at_rest
from rekindle.graph.modules import call_with, tensors_of
from rekindle.graph.quiet import printing
from tests.graph.branching import branching_models
from tests.graph.branching.branching_models import CASES
from tests.graph.test_groups import assert_groups

NAMES = list(CASES)


def built(name):
    torch.manual_seed(0)
    return CASES[name].build().train(), CASES[name].example()


@pytest.mark.parametrize("name", NAMES)
def test_groups_written_by_hand(name):
    model, example = built(name)
    graph = rk.trace(model, example, strict=False)
    assert_groups(graph, CASES[name].groups)
    parts = {part.partition(":")[0].replace("(model)", "") for part in graph.not_understood}
    assert parts == CASES[name].left_out and all("left out, because forward" in part for part in graph.not_understood)
    slots = {s.tensor for g in graph.groups for s in (*g.incoming, *g.norms, *g.outgoing)}
    assert slots | graph.uncovered.keys() >= set(graph.parameters), "every parameter is covered, or has a reason"


@pytest.mark.parametrize("name", NAMES)
def test_a_group_behind_silent_readers_changes_nothing(name):
    """Brute force, on the model itself and for inputs that take either branch."""
    model, example = built(name)
    graph = rk.trace(model, example, strict=False)
    own = {key: tensor.detach() for key, tensor in tensors_of(model).items()}
    for group in (g for g in graph.groups if g.kind != "output"):
        quiet, loud = dict(own), dict(own)
        for slot in group.outgoing:
            quiet[slot.tensor] = quiet[slot.tensor].masked_fill(slot.where.mask(quiet[slot.tensor]), 0)
        disturbed = dict(quiet)
        for slot in group.incoming:
            for tensors in (disturbed, loud):
                mask = slot.where.mask(tensors[slot.tensor])
                tensors[slot.tensor] = torch.where(mask, tensors[slot.tensor] * 3 + 1, tensors[slot.tensor])
        for each in inputs(example):
            torch.testing.assert_close(run(model, disturbed, each), run(model, quiet, each), rtol=0, atol=0)
        assert any(not torch.equal(run(model, loud, each), run(model, own, each)) for each in inputs(example))


def inputs(example):
    yield example
    yield pytree.tree_map(lambda x: -5 * x if x.is_floating_point() else x, example)


def run(model, tensors, example):
    with torch.no_grad(), at_rest(model):
        return call_with(model, tensors, *as_call(model, example))


@pytest.mark.parametrize("name", NAMES)
def test_roles_and_matrices_of_all_weights_that_were_used(name):
    model, example = built(name)
    graph = rk.trace(model, example, strict=False)
    used = {n for n, shape in graph.parameters.items() if len(shape) == 2 and n not in graph.outside}
    assert {weight.tensor for weight in graph.weights} == used
    roles = {weight.name: weight.role for weight in graph.weights}
    borders = {
        "if_in_the_middle": {"first.weight": "input", "third.weight": "hidden", "block.this.up.weight": "hidden"},
        "item_gate": {"beside.weight": "input", "gated.layer.weight": "hidden"},
        "loop_over_lengths": {"wide.weight": "hidden", "steps.step.down.weight": "hidden"},
        "hand_written_experts": {"mixtures.0.router.weight": "hidden", "tail.0.weight": "hidden"},
        "root_branch": {"stem.weight": "hidden", "head.weight": "hidden"},
    }[name]
    assert borders.items() <= roles.items()


@pytest.mark.parametrize("name", NAMES)
def test_verify_proves_what_is_left(name):
    model, example = built(name)
    graph = rk.trace(model, example, strict=False)
    proof = graph.verify(model, example)
    assert set(proof.proved) == {g.name for g in graph.groups if g.kind != "output"}


@pytest.mark.parametrize("name", NAMES)
def test_strict_names_file_line_module_and_what_to_do(name):
    model, example = built(name)
    with pytest.raises(GraphError) as caught:
        rk.trace(model, example)
    got = caught.value.got
    path, _, line = got.partition(", in ")[0].rpartition(" at ")[2].rpartition(":")
    assert path == branching_models.__file__
    with open(path, encoding="utf-8") as source:
        assert CASES[name].stops_at in source.read().splitlines()[int(line) - 1]
    assert any((f"module {part}" if part else "the model's own forward") in got for part in CASES[name].left_out)
    assert "strict=False" in caught.value.fix and got.startswith("forward ")


@pytest.mark.parametrize("name", NAMES)
def test_the_model_is_left_as_it_was(name):
    model, example = built(name)
    before = {n: t.clone() for n, t in model.state_dict().items()}
    attributes = [dict(vars(module)) for module in model.modules()]
    state = torch.get_rng_state()
    rk.trace(model, example, strict=False)
    assert all(torch.equal(before[n], t) for n, t in model.state_dict().items())
    assert all(m.training and "forward" not in vars(m) for m in model.modules())
    assert [vars(module).keys() for module in model.modules()] == [each.keys() for each in attributes]
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("name", NAMES)
def test_audit_and_treatments_work_and_name_what_is_left_out(name):
    model, example = built(name)
    audit = rk.audit(model, example=example, probe=False)
    assert "weight_norm" in audit.readings and audit.graph.not_understood
    record = rk.apply_("fire", model, example=example)
    assert record.changed >= 3
    told = {skip.tensor.partition("[")[0] for skip in record.skips} | {row.tensor for row in record.rows}
    assert told >= {n for n, _ in model.named_parameters()}


def test_a_number_that_leaves_a_module_takes_its_caller_out_as_well():
    class Router(nn.Module):
        def __init__(self):
            super().__init__()
            self.score = nn.Linear(6, 2)

        def forward(self, x):
            return int(self.score(x).mean(0).argmax())

    class Routed(nn.Module):
        def __init__(self):
            super().__init__()
            self.router, self.stem = Router(), nn.Linear(6, 7)
            self.a, self.b = nn.Linear(7, 3), nn.Linear(7, 3)

        def forward(self, x):
            x = torch.relu(self.stem(x))
            return self.a(x) if self.router(x[:, :6]) else self.b(x)

    graph = rk.trace(Routed(), torch.randn(4, 6), strict=False)
    assert not graph.groups, "on the other way the stem has another reader"
    assert [part.partition(":")[0] for part in graph.not_understood] == ["(model)", "router"]
    assert {"stem.weight", "router.score.weight"} <= {weight.name for weight in graph.weights}


def test_a_number_that_scales_is_a_reader_nobody_sees():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.head = nn.Linear(6, 7), nn.Linear(7, 3)

        def forward(self, x):
            x = torch.relu(self.stem(x))
            return self.head(x) * x.sum().item()

    graph = rk.trace(Scaled(), torch.rand(4, 6), strict=False)
    assert [(g.name, g.kind) for g in graph.groups] == [("head", "output")]
    with pytest.raises(GraphError, match=r"\(model\): aten.item"):
        rk.trace(Scaled(), torch.rand(4, 6))


def test_nested_outputs_and_several_calls_of_what_is_left_out():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(5, 4)

        def forward(self, x, *, shift):
            y = self.fc(x) if x.sum() > 0 else self.fc(-x)
            return {"out": (y + shift, None), "size": [y.sum(-1, keepdim=True)]}

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.pair, self.hidden, self.head = Pair(), nn.Linear(4, 6), nn.Linear(6, 2)

        def forward(self, x):
            first, second = self.pair(x, shift=1.0), self.pair(x[:2], shift=2.0)
            both = torch.cat([first["out"][0], second["out"][0]]) + second["size"][0].sum()
            return self.head(torch.relu(self.hidden(both)))

    graph = rk.trace(Twice(), torch.rand(3, 5), strict=False)
    assert [(g.name, g.size) for g in graph.groups] == [("hidden", 6), ("head", 2)]
    assert [part.partition(":")[0] for part in graph.not_understood] == ["pair"]


def test_a_part_that_is_called_in_several_ways_is_followed_in_all_of_them():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down, self.side = nn.Linear(4, 6), nn.Linear(6, 4), nn.Linear(6, 4)

        def forward(self, x, both=False):
            h = torch.relu(self.up(x))
            return self.down(h) + self.side(h) if both else self.down(h)

    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Block()

        def forward(self, x):
            x = self.block(x)
            return self.block(x, both=True) if x.sum() > -1e6 else x

    graph = rk.trace(Root(), torch.rand(3, 4), strict=False)
    assert {s.tensor for s in graph.group("block.up").outgoing} == {"block.down.weight", "block.side.weight"}


def test_canonical_names_in_compiled_and_tied_parts():
    model, example = built("root_branch")
    model.blocks[0] = torch.compile(model.blocks[0])
    model.blocks.append(model.blocks[1])
    graph = rk.trace(model, example, strict=False)
    assert {g.name for g in graph.groups} == {"blocks.0.up", "blocks.1.up", "more.0.0"}
    assert graph.aliases["blocks.1.up.weight"] == ("blocks.2.up.weight",)


def test_a_model_that_does_not_run_is_an_error_not_a_gap():
    model, _ = built("root_branch")
    with pytest.raises(GraphError, match="model\\(example\\) fails"):
        rk.trace(model, torch.ones(1, 5), strict=False)


def test_where_nothing_can_be_exported_the_weights_are_scanned_and_it_is_said():
    class Numpy(nn.Linear):
        def forward(self, x):
            return torch.from_numpy(x.numpy() @ self.weight.detach().numpy().T)

    graph = rk.trace(nn.Sequential(Numpy(3, 4), Numpy(4, 2)), torch.ones(1, 3), strict=False)
    assert not graph.traced and {weight.name for weight in graph.weights} == {"0.weight", "1.weight"}
    assert len(graph.not_understood) == 2 and "takes values out of torch" in graph.not_understood[0]
    assert rk.audit(nn.Sequential(Numpy(3, 4), Numpy(4, 2)), example=torch.ones(1, 3), probe=False).readings


@pytest.mark.parametrize("strict", [True, False])
def test_torch_prints_nothing(strict):
    script = f"""
        import warnings, logging
        warnings.simplefilter("always")
        logging.basicConfig(level=logging.DEBUG)
        logging.getLogger("matplotlib").setLevel(logging.ERROR)
        import rekindle as rk
        from tests.graph.branching.branching_models import CASES
        for case in CASES.values():
            try:
                rk.trace(case.build(), case.example(), strict={strict})
            except rk.errors.GraphError:
                pass
        import torch
        print("heard", [n for n in logging.root.manager.loggerDict if n.startswith("torch")
                        and getattr(logging.getLogger(n), "disabled", False)])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout == "heard []\n"
    assert "def forward" not in done.stderr and "torch" not in done.stderr, done.stderr


@pytest.mark.parametrize("at", range(1, 5))  # export, a real run, export in pieces: the model, its blocks
def test_an_interrupt_at_any_run_leaves_everything_as_it_was(at):
    runs = []

    class Counts(nn.Identity):
        def forward(self, x):
            runs.append(1)
            if len(runs) == at:
                raise KeyboardInterrupt
            return x

    model, example = built("root_branch")
    model.blocks[0].up = nn.Sequential(Counts(), model.blocks[0].up)
    before = surroundings_of(model)
    with pytest.raises(KeyboardInterrupt):
        rk.trace(model, example, strict=False)
    assert len(runs) == at and surroundings_of(model) == before


def surroundings_of(model):
    modules = [(m.training, "forward" in vars(m), len(m._forward_hooks)) for m in model.modules()]
    switch = vars(torch.distributions.Distribution)["_validate_args"]
    return modules, switch, "print" in printing(), torch.is_grad_enabled(), torch.get_rng_state().tolist()
