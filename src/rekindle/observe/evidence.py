"""What was observed beside the weights themselves. Methods say what they need; asking for what is missing raises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from rekindle.core.errors import PlanError
from rekindle.core.seeds import global_seed

Reference = nn.Module | Mapping[str, Tensor] | Callable[[], nn.Module]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything that a method may look at.

    Attributes:
        reference: Initial weights by name, or None.
    """

    reference: Mapping[str, Tensor] | None = None

    def initial(self, tensor: str, like: tuple[int, ...], method: str) -> Tensor:
        """Return the initial value of a tensor.

        Raises:
            PlanError: There is no reference, or it does not have this tensor in this shape.
        """
        if self.reference is None:
            raise PlanError(
                expected=f"initial weights for {method}",
                got="none",
                fix="pass reference=: a state dict saved at the start, a fresh model, or a function that builds one",
            )
        found = self.reference.get(tensor)
        if found is None or tuple(found.shape) != like:
            raise PlanError(
                expected=f"a reference with {tensor} of shape {like}",
                got="none of that name" if found is None else f"shape {tuple(found.shape)}",
                fix="take the reference from the same architecture, under the same names",
            )
        return found.detach()


def gather(reference: Reference | None, seed: int) -> Evidence:
    """Collect the evidence that was given.

    Args:
        reference: A state dict, a model, or a function that builds a fresh model (called with its own seed).
        seed: Seed of that function's draws; torch's global generator is left as it was.
    """
    if reference is None:
        return Evidence()
    if isinstance(reference, Mapping):
        return Evidence(reference)
    if isinstance(reference, nn.Module):
        return Evidence(_tensors(reference))
    if not callable(reference):
        raise PlanError(
            expected="reference: a state dict, a model, or a function that builds one",
            got=type(reference).__name__,
            fix="pass model.state_dict() as it was at the start, or the function that builds your model",
        )
    with global_seed(seed, "reference", "factory"):
        return Evidence(_tensors(reference()))


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
