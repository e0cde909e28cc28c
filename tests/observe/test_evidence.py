"""What methods may look at: asked for and missing, it raises; given, it is made when it is first asked for."""

import pytest
import torch
from torch import nn

from rekindle.errors import PlanError
from rekindle.graph import trace
from rekindle.observe import gather
from rekindle.observe.evidence import Evidence


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


X = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", ["state dict", "model", "function"])
def test_initial_weights_from_all_three(kind):
    model = net(3)
    given = {"state dict": model.state_dict(), "model": model, "function": lambda: net(3)}[kind]
    evidence = gather(given, seed=0)
    for name, tensor in model.state_dict().items():
        found = evidence.initial(name, tuple(tensor.shape), "a method")
        assert torch.equal(found, tensor) and not found.requires_grad


def test_a_function_draws_by_the_seed_and_leaves_the_generator():
    build = lambda: nn.Linear(3, 2)  # noqa: E731
    state = torch.get_rng_state()
    drawn = [gather(build, seed).initial("weight", (2, 3), "a method") for seed in (0, 0, 1)]
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


def test_tied_weights_are_found_under_both_names():
    model = nn.Module()
    model.a, model.b = nn.Linear(2, 2), nn.Linear(2, 2)
    model.b.weight = model.a.weight
    assert gather(model, 0).initial("b.weight", (2, 2), "a method").equal(model.a.weight)


def test_what_is_missing_or_does_not_fit_is_told_with_the_methods_name():
    with pytest.raises(PlanError, match="initial weights for soften"):
        Evidence().initial("w", (2,), "soften")
    evidence = gather({"w": torch.ones(2)}, 0)
    with pytest.raises(PlanError, match=r"(?s)w of shape \(3,\).*got: shape \(2,\)"):
        evidence.initial("w", (3,), "soften")
    with pytest.raises(PlanError, match="none of that name"):
        evidence.initial("v", (3,), "soften")
    with pytest.raises(PlanError, match="data for soften"):
        evidence.gradients("soften", 0.1)
    with pytest.raises(PlanError, match="a live model and a batch for soften"):
        evidence.live("soften")
    with pytest.raises(PlanError, match="a state dict, a model, or a function"):
        gather(3, 0)


def test_the_data_is_gone_through_when_a_method_asks_once_for_each_alpha():
    model, passes = net(), []

    def data():
        passes.append(1)
        yield X

    class Again:
        def __iter__(self):
            return data()

    loss = lambda model, batch: model(batch).square().mean()  # noqa: E731
    evidence = gather(None, 0, model=model, graph=trace(model, X), data=Again(), loss=loss)
    assert not passes
    first = evidence.gradients("a method", 0.5)
    assert evidence.gradients("a method", 0.5) is first and len(passes) == 1
    evidence.gradients("a method", 0.9)
    assert len(passes) == 2


def test_the_batch_to_run_the_model_on():
    model = net()
    assert gather(None, 0, model=model, example=X).live("a method") == (model, X)
    found, inputs = gather(None, 0, model=model, data=[(X, torch.zeros(6))], example=None).live("a method")
    assert found is model and torch.equal(inputs, X), "of a pair, the inputs"
    with pytest.raises(PlanError, match="no model"):
        gather(None, 0, model=model.state_dict(), example=X).live("a method")
    with pytest.raises(PlanError, match="neither data= nor example="):
        gather(None, 0, model=model).live("a method")
