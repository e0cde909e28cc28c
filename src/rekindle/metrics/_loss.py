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
from torch.func import grad
from torch.nn.attention import SDPBackend, sdpa_kernel

from rekindle.errors import PlanError
from rekindle.graph.modules import call_with, parameters_of
from rekindle.graph.names import canonical
from rekindle.graph.plain import not_plain_in, why_not_plain
from rekindle.graph.unwrap import bare
from rekindle.metrics.reading import MetricInputs
from rekindle.observe.features import resting
from rekindle.observe.visit import batches_of, device_of, size_of
from rekindle.text import counted

Parameters = dict[str, Tensor]


class _Closed(nn.Module):
    """A model with its loss, so that `functional_call` reaches the model inside the user's loss function."""

    def __init__(self, model: nn.Module, loss: Any) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch: Any) -> Any:
        return self.loss(self.model, batch)


class MeanLoss:
    """The loss over batches at any values of the parameters; every sample counts alike.

    The loss of a batch is taken as a mean over its samples (see `size_of`), so that this is the loss of all of them at
    once, in whatever batches they come.

    Args:
        inputs: With a live model, batches and a loss.
        samples: Batches are taken until they hold this many samples; None for all.
    """

    def __init__(self, inputs: MetricInputs, samples: int | None = None) -> None:
        assert inputs.model is not None
        self.model = bare(inputs.model)
        self.closed = _Closed(self.model, inputs.loss)
        # A list: a tuple of tensors would look like a single batch.
        every = batches_of(list(inputs.batches), device_of(self.model.parameters()), "a loss")
        self.batches = list(_up_to(every, samples))
        sizes = [size_of(batch) for batch in self.batches]
        self.samples = sum(sizes)
        self.shares = [size / max(1, self.samples) for size in sizes]
        self.seed = inputs.seed

    @contextlib.contextmanager
    def open(self, reason: str) -> Iterator[None]:
        """Let the loss be computed inside: the model is at rest, and afterwards what it was."""
        # Attention by plain mathematics: the fused kernels have no second derivative.
        with resting(self.model, self.seed, reason), sdpa_kernel(SDPBackend.MATH):
            yield

    def parameters(self, *, trained_only: bool) -> Parameters:
        """Return the parameters by name, detached; of plain floats, and if asked only those that take gradients."""
        named = parameters_of(self.model).items()
        return {n: p.detach() for n, p in named if (p.requires_grad or not trained_only) and not why_not_plain(p)}

    def one(self, parameters: Mapping[str, Tensor], batch: Any) -> Tensor:
        """Return the loss of one batch, a scalar."""
        # Copies of the buffers, because torch.func does not let a model write into what it has not been given.
        exchanged = dict(parameters) | {canonical(name): buffer.clone() for name, buffer in self.model.named_buffers()}
        value = self._called({f"model.{name}": t for name, t in exchanged.items()}, batch)
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise PlanError(
                expected="a loss that is one number",
                got=f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__,
                fix="average it inside your loss function, as in .mean()",
            )
        return value.reshape(())

    def _called(self, tensors: Mapping[str, Tensor], batch: Any) -> Any:
        try:
            return call_with(self.closed, tensors, (batch,), {})
        except RuntimeError as error:
            odd = not_plain_in(self.model)
            if not odd:
                raise
            raise PlanError(
                expected="a model that runs with its parameters exchanged, as torch.func does it",
                got=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}; it has {counted(list(odd))}",
                fix="leave metrics of the loss out, or give the model without what holds no plain floats",
            ) from error

    def __call__(self, parameters: Mapping[str, Tensor]) -> float:
        """Return the mean loss, without gradients."""
        with torch.no_grad():
            pairs = zip(self.batches, self.shares, strict=True)
            return float(sum(share * self.one(parameters, batch).double() for batch, share in pairs))

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
            for batch, share in zip(self.batches, self.shares, strict=True):
                for name, value in of(batch).items():
                    part = share * value.detach()
                    total[name] = total[name] + part if name in total else part
        return total


def _up_to(batches: Iterator[Any], samples: int | None) -> Iterator[Any]:
    seen = 0
    for batch in batches:
        yield batch
        seen += size_of(batch)
        if samples is not None and seen >= samples:
            return
