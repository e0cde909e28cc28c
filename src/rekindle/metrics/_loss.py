"""The mean loss over batches as a function of the parameters, for metrics that move or differentiate by them.

The model runs in evaluation mode on copies of its buffers (BatchNorm by its running statistics, dropout off), and its
parameters are exchanged for the call, never written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from rekindle.errors import PlanError
from rekindle.metrics.reading import MetricInputs
from rekindle.observe.features import resting
from rekindle.observe.visit import batches_of, device_of

Parameters = dict[str, Tensor]


class _Closed(nn.Module):
    """A model with its loss, so that `functional_call` reaches the model inside the user's loss function."""

    def __init__(self, model: nn.Module, loss: Any) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch: Any) -> Any:
        return self.loss(self.model, batch)


class MeanLoss:
    """The loss over batches at any values of the parameters; every batch counts alike.

    Args:
        inputs: With a live model, batches and a loss.
        samples: Batches are taken until they hold this many samples; None for all.
    """

    def __init__(self, inputs: MetricInputs, samples: int | None = None) -> None:
        assert inputs.model is not None
        self.model, self.closed = inputs.model, _Closed(inputs.model, inputs.loss)
        # A list: a tuple of tensors would look like a single batch.
        every = batches_of(list(inputs.batches), device_of(self.model.parameters()), "a loss")
        self.batches = list(_up_to(every, samples))
        self.samples = sum(size_of(batch) for batch in self.batches)
        self.seed = inputs.seed

    @contextlib.contextmanager
    def open(self, reason: str) -> Iterator[None]:
        """Let the loss be computed inside: the model is at rest, and afterwards what it was."""
        # Attention by plain mathematics: the fused kernels have no second derivative.
        with resting(self.model, self.seed, reason), sdpa_kernel(SDPBackend.MATH):
            yield

    def parameters(self, *, trained_only: bool) -> Parameters:
        """Return the parameters by name, detached; of floats, and if asked only those that take gradients."""
        named = self.model.named_parameters()
        return {n: p.detach() for n, p in named if p.is_floating_point() and (p.requires_grad or not trained_only)}

    def one(self, parameters: Mapping[str, Tensor], batch: Any) -> Tensor:
        """Return the loss of one batch, a scalar."""
        # Copies of the buffers, because torch.func does not let a model write into what it has not been given.
        exchanged = dict(parameters) | {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        value = functional_call(self.closed, {f"model.{name}": t for name, t in exchanged.items()}, (batch,))
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise PlanError(
                expected="a loss that is one number",
                got=f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__,
                fix="average it inside your loss function, as in .mean()",
            )
        return value.reshape(())

    def __call__(self, parameters: Mapping[str, Tensor]) -> float:
        """Return the mean loss, without gradients."""
        with torch.no_grad():
            return float(torch.stack([self.one(parameters, batch).double() for batch in self.batches]).mean())

    def gradient(self, parameters: Parameters) -> Parameters:
        """Return the gradient of the mean loss."""
        return self._mean(lambda batch: self.gradient_of(batch)(parameters))

    def gradient_of(self, batch: Any) -> Callable[[Parameters], Parameters]:
        """Return the gradient of one batch's loss as a function of the parameters."""
        found: Callable[[Parameters], Parameters] = grad(lambda parameters: self.one(parameters, batch))
        return found

    def product(self, parameters: Parameters, direction: Parameters) -> Parameters:
        """Return the Hessian of the mean loss times a direction, by reverse over reverse."""

        def of(batch: Any) -> Parameters:
            pull = torch.func.vjp(self.gradient_of(batch), parameters)[1]
            found: Parameters = pull(direction)[0]
            return found

        return self._mean(of)

    def _mean(self, of: Callable[[Any], Parameters]) -> Parameters:
        total: Parameters = {}
        with torch.enable_grad():
            for batch in self.batches:
                for name, value in of(batch).items():
                    share = value.detach() / len(self.batches)
                    total[name] = total[name] + share if name in total else share
        return total


def size_of(batch: Any) -> int:
    """Return the number of samples of a batch: the length of its first tensor."""
    tensors = [leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor) and leaf.dim()]
    return len(tensors[0]) if tensors else 1


def _up_to(batches: Iterator[Any], samples: int | None) -> Iterator[Any]:
    seen = 0
    for batch in batches:
        yield batch
        seen += size_of(batch)
        if samples is not None and seen >= samples:
            return
