"""How a small module and the unit groups it must have are written down."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tests.graph.expected_notation import G, Place, w, wb

L, C1, C2 = nn.Linear, nn.Conv1d, nn.Conv2d
HEAD = G(2, wb("h"), kind="output")


class Net(nn.Module):
    def __init__(self, forward: Callable[..., Any], parts: dict[str, Any]) -> None:
        super().__init__()
        self.compute = forward
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.compute(self, *args, **kwargs)


@dataclass(frozen=True)
class Case:
    name: str
    build: Callable[[], nn.Module]
    example: Any
    groups: list[G]
    swap: bool = True  # False: places matter (rotations, grouped convolutions), so units cannot change places
    uncovered: frozenset[str] = frozenset()

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        return self.build()


def case(
    name: str, forward: Callable[..., Any], parts: Callable[[], dict[str, Any]], example: Any, *groups: G, **more: Any
) -> Case:
    return Case(name, lambda: Net(forward, parts()), example, list(groups), **more)


def data(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape) * 0.5)


def place(view: tuple[int, ...], dims: tuple[int, ...], index: list[list[int]]) -> Place:
    return Place(view, dims, index)


def e_h() -> dict[str, Any]:
    return {"e": L(4, 6), "h": L(6, 2)}


def e_a_h() -> dict[str, Any]:
    return {"e": L(4, 6), "a": L(4, 6), "h": L(6, 2)}


E_H = [G(6, wb("e"), w("h")), HEAD]
