"""Queries, keys and values by the names of their layers, where nobody ran the model.

A name is believed only where all layers of that name in public code mean the same by it. A trace needs none of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from rekindle.graph.weight import Weight, WeightRole


def _spellings(letter: str, word: str) -> tuple[str, ...]:
    both = (f"{start}_{end}" for start in (letter, word) for end in ("proj", "lin", "linear", "proj_weight"))
    return (letter, word, *both, f"to_{letter}", f"w{letter}", f"linear_{letter}")


SINGLE: dict[WeightRole, tuple[str, ...]] = {
    "q": _spellings("q", "query"),
    "k": _spellings("k", "key"),
    "v": _spellings("v", "value"),
}
# Three blocks one after another, each as large as the input. InternLM's wqkv is laid out in another way: case counts.
CONTIGUOUS = ("c_attn", "qkv", "in_proj", "in_proj_weight", "Wqkv", "qkv_proj", "to_qkv")
# Also the names of layers that are no attention: a state space model projects its input, too.
COMMON = ("in_proj", "c_attn")
FUSED = ("qkv", "kv", "qk", "query_key_value", "key_value", "query_key", "wqkv", "wkv")
# Classes of attention whose layers have such a name and another layout: by head, or with a gate beside the query.
OTHER_LAYOUT = ("GPTBigCode", "CodeGen", "Disentangled", "Qwen3Next", "Qwen3_5")
LAYOUT = "it holds several projections, and its name does not tell how they are laid out"
SEVERAL = (2, 3)  # outputs for each input of what may hold two or three projections


@dataclass(frozen=True)
class Projection:
    """What the name of a layer tells.

    Attributes:
        roles: What its rows are for: one role for all of them, or three for three equal blocks; none if not known.
        unclear: Why it may hold several projections whose rows cannot be told apart, or nothing.
    """

    roles: tuple[WeightRole, ...] = ()
    unclear: str = ""


def is_attention(name: str) -> bool:
    """Tell whether a class or a path is that of attention, by its name.

    Example:
        >>> is_attention("BertSelfAttention"), is_attention("h.0.attn.c_proj"), is_attention("MLP")
        (True, True, False)
    """
    return "attention" in name.lower() or "attn" in name.lower()


def projection(layer: str, out: int, in_: int, *, attention: bool, owner: str = "") -> Projection:
    """Return what a layer projects to.

    Args:
        layer: The layer's own name, or the parameter's where it belongs to no layer of its own.
        out: Its outputs.
        in_: Its inputs.
        attention: Whether it stands in something that is named attention.
        owner: Class of what it stands in, if known.

    Example:
        >>> projection("qkv", 12, 4, attention=True).roles, projection("to_k", 4, 4, attention=True).roles
        (('q', 'k', 'v'), ('k',))
        >>> projection("query_key_value", 12, 4, attention=True).unclear
        'it holds several projections, and its name does not tell how they are laid out'
    """
    single = next((role for role, names in SINGLE.items() if layer.lower() in names), None)
    several = in_ > 0 and out % in_ == 0 and out // in_ in SEVERAL
    named = layer in CONTIGUOUS or _is_fused(layer)
    if attention and (single or named) and owner.startswith(OTHER_LAYOUT):
        return Projection(unclear=f"it is a projection of {owner}, whose rows are laid out in another way")
    if single:
        return Projection((single,)) if attention else Projection()
    if layer in CONTIGUOUS and out == 3 * in_:
        return Projection(("q", "k", "v"))
    if layer in COMMON and not attention:
        return Projection()
    if named:
        return Projection(unclear=LAYOUT)
    if attention and several:
        return Projection(unclear=f"it has {out // in_} outputs for each input: queries, keys or values may share it")
    return Projection()


def _is_fused(layer: str) -> bool:
    padded = f"_{layer.lower()}_"
    return any(f"_{name}_" in padded for name in FUSED)


def split(weight: Weight, roles: Sequence[WeightRole]) -> list[Weight]:
    """Return the weights of equal blocks of rows, one for each role; the weight itself where there are no several."""
    if len(roles) < 2:
        return [replace(weight, role=roles[0]) if roles else weight]
    size = weight.out // len(roles)
    rows = [torch.arange(number * size, (number + 1) * size) for number in range(len(roles))]
    return [
        replace(weight, name=f"{weight.tensor}[{role}]", role=role, view=replace(weight.view, rows=block))
        for role, block in zip(roles, rows, strict=True)
    ]


def roles_are_known(found: Mapping[str, Projection], attention: Iterable[str]) -> bool:
    """Tell whether names leave no doubt about queries and keys: all attention has both, and nothing else looks so.

    Args:
        found: What each layer projects to, by its path.
        attention: Paths of everything that is named attention; those without a layer do not count.
    """
    inside = {path: [each for name, each in found.items() if _is_below(name, path)] for path in attention}
    places = {path: layers for path, layers in inside.items() if layers}
    if not places or any(each.unclear for each in found.values()):
        return False
    looks_so = (*SINGLE["q"], *SINGLE["k"])
    outside = [name for name in found if not any(_is_below(name, path) for path in places)]
    if any({"q", "k"} & {*found[name].roles} or name.rpartition(".")[2].lower() in looks_so for name in outside):
        return False
    return all({"q", "k"} <= {role for each in layers for role in each.roles} for layers in places.values())


def _is_below(name: str, path: str) -> bool:
    return not path or name == path or name.startswith(f"{path}.")
