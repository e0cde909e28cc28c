"""Whatever was left half put back is put back as a whole."""

import logging
import warnings

import pytest
import torch
from torch import nn
from torch.distributions import Distribution
from torch.utils._python_dispatch import TorchDispatchMode

from rekindle.graph.own_run import is_own_run, set_own_run
from rekindle.graph.quiet import printing
from rekindle.graph.surroundings import Surroundings, dispatch_modes, restored_on_failure
from rekindle.graph.validation import SWITCH, _Off
from rekindle.testing.aged import hooks


class Looks(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class Configured(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(3, 3), nn.BatchNorm1d(3))
        self.config = type("Config", (), {"use_cache": True})()


def spoil(model):
    """Change all that our contexts change, and put nothing back."""
    torch.set_grad_enabled(False)
    torch.backends.mha.set_fastpath_enabled(False)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.manual_seed(123)
    set_own_run(True)
    warnings.simplefilter("ignore")
    logging.getLogger("torch.export").disabled = True
    printing()["print"] = None
    setattr(Distribution, SWITCH, _Off(lambda _: False))
    Looks().__enter__()
    torch.compiler.set_stance("force_eager")
    model.eval()
    model[1]._buffers["running_mean"] = torch.full((3,), 7.0)
    model[0].register_forward_hook(lambda *_: None)
    model[0].register_forward_pre_hook(lambda *_: None, with_kwargs=True)
    model[0].__dict__["forward"] = None
    model.config.use_cache = False


def seen(model):
    return [
        torch.is_grad_enabled(),
        torch.backends.mha.get_fastpath_enabled(),
        torch.backends.cuda.flash_sdp_enabled(),
        torch.get_rng_state().tolist(),
        is_own_run(),
        list(warnings.filters),
        logging.getLogger("torch.export").disabled,
        printing().get("print", "the builtin"),
        vars(Distribution)[SWITCH],
        dispatch_modes(),
        torch._dynamo.eval_frame._stance,
        [m.training for m in model.modules()],
        model[1].running_mean.tolist(),
        hooks(model),
        len(model[0]._forward_pre_hooks_with_kwargs),
        "forward" in model[0].__dict__,
        model.config.use_cache,
    ]


def test_all_that_was_changed_is_put_back():
    model = Configured()
    torch.compiler.set_stance("default")
    kept = model[0].register_forward_hook(lambda *_: None)
    before = seen(model)
    with pytest.raises(KeyError), restored_on_failure(model):
        spoil(model)
        assert all(now != then for now, then in zip(seen(model), before, strict=True))
        raise KeyError
    assert seen(model) == before
    kept.remove()
    assert not any(hooks(model)), "a handle from before still knows its hook"


def test_what_succeeds_is_left_as_it_is():
    with restored_on_failure():
        torch.manual_seed(5)
    assert torch.initial_seed() == 5


def test_hooks_that_were_taken_out_come_back():
    layer = nn.Linear(2, 2)
    handle = layer.register_forward_hook(lambda *_: None)
    around = Surroundings(layer)
    handle.remove()
    around.restore()
    assert hooks(layer) == [1]
