"""Optimizers by spec string: `optimizer("sgd:lr=0.003,momentum=0.9", model, example)`."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rekindle.methods.registry import keys_of, method
from rekindle.methods.spec import choose, fill

Parameters = list[nn.Parameter]


def _adam(
    parameters: Parameters,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> Optimizer:
    return torch.optim.Adam(parameters, lr, betas, eps, weight_decay, fused=_fusible(parameters))


def _adamw(
    parameters: Parameters,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
    decay: Literal["all", "matrices"] = "all",
) -> Optimizer:
    groups = _matrices_first(parameters) if decay == "matrices" else parameters
    made = torch.optim.AdamW(groups, lr, betas, eps, weight_decay, fused=_fusible(parameters))
    if decay == "matrices":
        made.param_groups[-1]["weight_decay"] = 0.0
    return made


def _matrices_first(parameters: Parameters) -> list[dict[str, Any]]:
    """Return two groups: what has two dimensions or more, and biases and norms, which GPT's recipe does not decay."""
    matrices, vectors = [p for p in parameters if p.ndim > 1], [p for p in parameters if p.ndim < 2]
    return [{"params": matrices}, {"params": vectors}]


def _sgd(
    parameters: Parameters, lr: float = 1e-2, momentum: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False
) -> Optimizer:
    return torch.optim.SGD(
        parameters, lr, momentum, weight_decay=weight_decay, nesterov=nesterov, fused=_fusible(parameters)
    )


PLAIN: dict[str, Any] = {"adam": _adam, "adamw": _adamw, "sgd": _sgd}


def optimizer(spec: str, model: nn.Module, example: Tensor) -> Optimizer:
    """Return an optimizer for all parameters of a model.

    Args:
        spec: "adam", "adamw", "sgd", or a method that is an optimizer ("muon"), with settings.
        model: What it trains.
        example: Input for the model; "muon" traces with it which matrices are hidden.

    Raises:
        SettingsError: There is no such optimizer or setting.

    Example:
        >>> made = optimizer("sgd:lr=0.003,momentum=0.9", nn.Linear(2, 2), torch.zeros(1, 2))
        >>> made.param_groups[0]["momentum"]
        0.9
    """
    name = choose("optimizers", spec, (*PLAIN, *keys_of("optimizer")))
    if name not in PLAIN:
        made: Optimizer = method(spec).build(model, example)
        return made
    filled: Optimizer = fill(PLAIN[name], spec, {"parameters": list(model.parameters())})
    return filled


def _fusible(parameters: Parameters) -> bool:
    """One kernel for each tensor instead of one for each operation: half the time on small networks."""
    return all(p.device.type in ("cpu", "cuda") and p.dtype == torch.float32 for p in parameters)
