"""Small models in which one weight is no tensor of plain floats, between layers that are."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils import _pytree as pytree

X = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
Y = torch.arange(8) % 3
W = torch.randn(6, 6, generator=torch.Generator().manual_seed(1))


class Own(Tensor):
    """A tensor class whose operations are its own, as torchao's are."""

    @staticmethod
    def __new__(cls, inner):
        return Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, requires_grad=False)

    def __init__(self, inner):
        self.inner = inner

    def __tensor_flatten__(self):
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Own(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        args, kwargs = pytree.tree_map_only(Own, lambda own: own.inner, (args, kwargs or {}))
        result = operation(*args, **kwargs)
        return Own(result) if operation is torch.ops.aten.detach.default else result


class Between(nn.Module):
    """Linear, what is odd beside a residual connection, BatchNorm, and a small perceptron."""

    def __init__(self, odd, use: Callable[[nn.Module, Tensor], Tensor]):
        super().__init__()
        self.up = nn.Linear(4, 6)
        if isinstance(odd, nn.Module):
            self.odd = odd
        else:
            frozen = odd.dtype not in TRAINED or odd.is_nested or isinstance(odd, Own)  # torch cannot train these
            self.weight = nn.Parameter(odd, requires_grad=not frozen)
        self.use, self.norm = use, nn.BatchNorm1d(6)
        self.down = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))

    def forward(self, x):
        h = F.relu(self.up(x))
        return self.down(F.relu(self.norm(h + self.use(self, h))))


TRAINED = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64)


@dataclass(frozen=True)
class Odd:
    """One kind: how to make it, what is said of it, and which names that is said of."""

    name: str
    make: Callable[[], nn.Module]
    said: str = ""
    of: tuple[str, ...] = ("weight",)
    traced: bool = True

    def __call__(self, seed: int = 0) -> nn.Module:
        torch.manual_seed(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.make()

    def __str__(self) -> str:
        return self.name


def linear(module, h):
    return F.linear(h, module.weight.to(h.dtype))


def four_bits(module, h):
    low, high = module.weight & 15, module.weight >> 4
    return F.linear(h, torch.cat([low.to(h.dtype) - 8, high.to(h.dtype) - 8], 1) / 20)


def spectral(module, h):
    return torch.fft.irfft(torch.fft.rfft(h) * module.weight, n=6)


def by_module(module, h):
    return module.odd(h)


def unused(module, h):
    return h


def quantized():
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(6, 6)), {nn.Linear}, dtype=torch.qint8)


def nested(layout):
    return torch.nested.nested_tensor([W[:2].clone(), W[:3].clone()], layout=layout)


CODES = torch.arange(18).reshape(6, 3) * 13 % 256
PLAIN = [
    Odd("float32", lambda: Between(W.clone(), linear)),
    Odd("bfloat16", lambda: Between(W.bfloat16(), linear)),
    Odd("float16", lambda: Between(W.half(), linear)),
    Odd("scalar", lambda: Between(torch.tensor(0.5), lambda m, h: h * m.weight)),
    Odd("transposed", lambda: Between(W.clone().t(), linear)),
]
EMPTY = [
    Odd(
        "no units",
        lambda: Between(nn.Sequential(nn.Linear(6, 0), nn.Linear(0, 6)), by_module),
        "no values",
        ("odd.0.weight", "odd.0.bias", "odd.1.weight"),
    ),
    Odd("no channels", lambda: Between(nn.Conv1d(0, 0, 1), unused), "no values", ("odd.weight", "odd.bias")),
    Odd("no rows", lambda: Between(nn.Embedding(0, 6), unused), "no values", ("odd.weight",)),
]
ODD = [
    Odd("int8", lambda: Between((W * 20).to(torch.int8), linear), "int8"),
    Odd("4 bits", lambda: Between(CODES.to(torch.uint8), four_bits), "uint8"),
    Odd("float8_e4m3fn", lambda: Between(W.to(torch.float8_e4m3fn), linear), "float8_e4m3fn"),
    Odd("float8_e5m2", lambda: Between(W.to(torch.float8_e5m2), linear), "float8_e5m2"),
    Odd(
        "complex linear",
        lambda: Between(nn.Linear(6, 6, dtype=torch.complex64), lambda m, h: m.odd(h.to(torch.complex64)).abs()),
        "complex64",
        ("odd.weight", "odd.bias"),
    ),
    Odd("fft", lambda: Between(torch.randn(4, dtype=torch.complex64), spectral), "complex64"),
    Odd("sparse_coo", lambda: Between(W.relu().to_sparse(), lambda m, h: (m.weight @ h.t()).t()), "sparse_coo"),
    Odd("sparse_csr", lambda: Between(W.relu().to_sparse_csr(), lambda m, h: (m.weight @ h.t()).t()), "sparse_csr"),
    Odd("expanded", lambda: Between(W[:, :1].expand(6, 6), linear), "share memory"),
    Odd("overlapping", lambda: Between(W.reshape(-1)[:11].clone().as_strided((6, 6), (1, 1)), linear), "share memory"),
    Odd("own class", lambda: Between(Own(W.clone()), lambda m, h: F.linear(h, m.weight * 1)), "of class Own"),
]
NOT_TRACED = [
    Odd(
        "qint8",
        lambda: Between(
            torch.quantize_per_tensor(W, 0.1, 0, torch.qint8), lambda m, h: F.linear(h, m.weight.dequantize())
        ),
        "quantized (qint8)",
        traced=False,
    ),
    Odd(
        "quantized module",
        lambda: Between(quantized(), by_module),
        "packed into an object",
        ("odd.0._packed_params._packed_params",),
        traced=False,
    ),
    Odd(
        "jagged",
        lambda: Between(nested(torch.jagged), lambda m, h: h * m.weight.values().sum()),
        "nested",
        traced=False,
    ),
    Odd(
        "nested",
        lambda: Between(nested(torch.strided), lambda m, h: h * m.weight.to_padded_tensor(0.0).sum()),
        "nested",
        traced=False,
    ),
]


def values(tensor: Tensor) -> Tensor:
    """Return what a tensor of any kind holds, as whole numbers or floats that can be compared bit by bit."""
    tensor = tensor.detach()
    if isinstance(tensor, Own):
        tensor = tensor.inner
    if tensor.is_nested:
        tensor = torch.cat([part.reshape(-1) for part in tensor.unbind()])
    tensor = tensor.int_repr() if tensor.is_quantized else tensor
    tensor = tensor.to_dense() if tensor.layout != torch.strided else tensor
    return tensor.clone().view(torch.uint8) if tensor.dtype.itemsize == 1 else tensor.clone()


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    """Return the values of all parameters and buffers."""
    return {name: values(tensor) for name, tensor in (*model.named_parameters(), *model.named_buffers())}
