"""By which initializer each tensor of a model was drawn, so that it can be drawn afresh.

Known are torch's own layers (their `reset_parameters`, also where a subclass has its own), the layers of `transformers`
models (normal with the config's `initializer_range`), and any other module that has a `reset_parameters`. Of other
parameters nothing is assumed.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import _WeightNorm
from torch.nn.utils.weight_norm import WeightNorm as OldWeightNorm

from rekindle.graph.modules import modules_of, submodule, weight_shape
from rekindle.kernels.initializers import Constant, Normal, Uniform
from rekindle.seeds import global_seed

ONES_ZEROS = (
    nn.modules.batchnorm._NormBase,
    nn.LayerNorm,
    nn.GroupNorm,
    *([nn.RMSNorm] if hasattr(nn, "RMSNorm") else []),
)
CONVOLUTIONS = nn.modules.conv._ConvNd
RECURRENT = (nn.RNNBase, nn.RNNCellBase)
STATISTICS = {"running_mean": 0.0, "running_var": 1.0, "num_batches_tracked": 0.0}


class Initializer(Protocol):
    """How a tensor is drawn."""

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw float32 values on the CPU."""


@dataclass(frozen=True, eq=False)
class ByModule:
    """Drawn by the module's own `reset_parameters`, on a copy."""

    module: nn.Module
    attribute: str

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Reset a copy of the module and take the tensor from it."""
        fresh = copy.deepcopy(self.module).cpu().float()
        with global_seed(generator.initial_seed(), self.attribute, "reset_parameters"):
            fresh.reset_parameters()  # type: ignore[operator]
        values: Tensor = getattr(fresh, self.attribute)
        return values.detach().reshape(shape)


def initializers_of(model: nn.Module) -> dict[str, Initializer]:
    """Return the initializer of each parameter and statistic of which one is known, by canonical name."""
    initializers: dict[str, Initializer] = {}
    seen: set[int] = set()
    for path, module, config in _modules(model):
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is None or id(tensor) in seen:
                continue
            seen.add(id(tensor))
            owner, attribute = _behind_parametrization(model, path, module, name)
            initializer = _initializer(owner, attribute, tensor, path, config)
            if initializer is not None:
                initializers[_join(path, name)] = initializer
    return initializers


def gains_of(model: nn.Module) -> dict[str, tuple[str, int]]:
    """Return for each gain of weight_norm the direction that it belongs to, and the dimension along which it runs."""
    gains = {}
    for path, module in modules_of(model).items():
        if isinstance(module, parametrize.ParametrizationList) and isinstance(module[0], _WeightNorm):
            gains[_join(path, "original0")] = (_join(path, "original1"), module[0].dim)
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, OldWeightNorm):
                gains[_join(path, f"{hook.name}_g")] = (_join(path, f"{hook.name}_v"), hook.dim)
    return gains


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _behind_parametrization(model: nn.Module, path: str, module: nn.Module, name: str) -> tuple[nn.Module, str]:
    """Return the layer and its attribute that a stored tensor stands for."""
    if isinstance(module, parametrize.ParametrizationList):
        owner, _, attribute = path.rpartition(".parametrizations.")
        if not owner:
            attribute = path.removeprefix("parametrizations.")
        return submodule(model, owner), attribute
    if name.endswith("_v") and any(isinstance(h, OldWeightNorm) for h in module._forward_pre_hooks.values()):
        return module, name.removesuffix("_v")
    return module, name


def _modules(model: nn.Module) -> Iterator[tuple[str, nn.Module, Any]]:
    """Yield path, module and the nearest `transformers` configuration above it."""
    configs: dict[str, Any] = {}
    for path, module in modules_of(model).items():
        own = getattr(module, "config", None)
        above = configs.get(path.rpartition(".")[0]) if path else None
        configs[path] = own if hasattr(own, "initializer_range") else above
        yield path, module, configs[path]


def _initializer(module: nn.Module, name: str, tensor: Tensor, path: str, config: Any) -> Initializer | None:
    if name in STATISTICS and isinstance(module, ONES_ZEROS):
        return Constant(STATISTICS[name])
    if not isinstance(tensor, nn.Parameter) or not _stored_as_used(module, name):
        return None
    if isinstance(module, ONES_ZEROS):
        return Constant(1.0 if name == "weight" else 0.0)
    if config is not None and (isinstance(module, (nn.Linear, nn.Embedding)) or _is_conv1d(module)):
        return _transformers_initializer(module, name, path, config)
    if _draws_its_own_way(module):
        return ByModule(module, name)
    if isinstance(module, nn.Linear) or isinstance(module, CONVOLUTIONS):
        in_attention = isinstance(module, nn.modules.linear.NonDynamicallyQuantizableLinear) and name == "bias"
        return Constant(0.0) if in_attention else _fan_in_uniform(module)
    if isinstance(module, nn.Bilinear):
        return _uniform(1 / math.sqrt(module.in1_features))
    if isinstance(module, nn.Embedding):
        return Normal(1.0, module.padding_idx)
    if isinstance(module, nn.MultiheadAttention):
        return _attention_initializer(name, tensor)
    if isinstance(module, RECURRENT):
        return _uniform(1 / math.sqrt(module.hidden_size))
    if isinstance(module, nn.PReLU):
        return Constant(module.init)
    return ByModule(module, name) if callable(getattr(module, "reset_parameters", None)) else None


def _stored_as_used(module: nn.Module, name: str) -> bool:
    """Tell whether what a layer stores of a weight may be drawn as the weight itself.

    So it is without parametrization, under weight_norm (its direction) and spectral_norm; an orthogonal one, or one of
    the user's own, stores something else, and a draw of it would be a guess.
    """
    kinds = ("_WeightNorm", "_SpectralNorm")
    lists = getattr(module, "parametrizations", {})
    return name not in lists or all(type(each).__name__ in kinds for each in lists[name])


def _draws_its_own_way(module: nn.Module) -> bool:
    """Tell whether a kind of linear, convolution or recurrent layer replaces torch's `reset_parameters` by its own."""
    own: Any = type(module)
    torchs: list[Any] = [cls for cls in (nn.Linear, CONVOLUTIONS, *RECURRENT) if isinstance(module, cls)]
    return any(own.reset_parameters is not cls.reset_parameters for cls in torchs)


def _uniform(bound: float) -> Uniform:
    return Uniform(-bound, bound)


def _fan_in_uniform(module: nn.Module) -> Uniform:
    """Kaiming uniform with a = sqrt(5), for weight and bias alike: the bound is 1/sqrt(fan-in)."""
    fan_in = math.prod(weight_shape(module)[1:])
    return _uniform(1 / math.sqrt(fan_in) if fan_in else 0.0)


def _attention_initializer(name: str, tensor: Tensor) -> Initializer:
    if name in ("in_proj_bias",):
        return Constant(0.0)
    if name in ("bias_k", "bias_v"):
        return Normal(math.sqrt(2 / (tensor.shape[0] * tensor.shape[-1] + tensor.shape[-1])))
    return _uniform(math.sqrt(6 / (tensor.shape[0] + tensor.shape[1])))


def _transformers_initializer(module: nn.Module, name: str, path: str, config: Any) -> Initializer:
    if name == "bias":
        return Constant(0.0)
    std = float(config.initializer_range)
    if getattr(config, "model_type", "") == "gpt2" and path.endswith("c_proj"):
        std /= math.sqrt(2 * config.n_layer)  # GPT-2 draws what writes into the stream smaller
    return Normal(std, getattr(module, "padding_idx", None))


def _is_conv1d(module: nn.Module) -> bool:
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")
