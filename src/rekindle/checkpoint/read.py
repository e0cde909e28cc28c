"""State dicts in files, read one tensor at a time: safetensors, sharded safetensors, and what torch.save wrote."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from rekindle.errors import RekindleError

TYPES = {  # of safetensors, by torch's names
    **{"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "C64": "complex64"},
    **{"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu", "BOOL": "bool"},
    **{"I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8"},
    **{"U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8"},
}
NESTED = ("state_dict", "model", "model_state_dict", "module")  # where trainers put the weights


class StoredTensors(Mapping[str, Tensor]):
    """The tensors of a checkpoint; each is read when it is asked for, and not kept.

    Attributes:
        outlines: Of each tensor its shape and type, known without reading it: a tensor on the meta device.
    """

    def __init__(self, files: Mapping[str, Path], outlines: Mapping[str, Tensor]) -> None:
        """Take for each tensor the file that holds it."""
        self._files, self.outlines = dict(files), dict(outlines)

    def __getitem__(self, name: str) -> Tensor:
        """Read one tensor."""
        from safetensors import safe_open

        with safe_open(self._files[name], framework="pt") as file:
            tensor: Tensor = file.get_tensor(name)
        return tensor

    def __iter__(self) -> Iterator[str]:
        """Go through the names."""
        return iter(self._files)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._files)


def open_checkpoint(path: str | os.PathLike[str]) -> tuple[Mapping[str, Tensor], dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a checkpoint, what is known of them without reading them, and entries that are no tensors.

    The second are tensors of the same shapes and types, possibly on the meta device; the third say what they are.

    Args:
        path: A .safetensors file, an index of shards (.safetensors.index.json), a folder with either, or a file of
            torch.save (read with weights_only=True, mapped into memory).

    Raises:
        RekindleError: It is missing, torn, or not a state dict.
    """
    path = _file(Path(path))
    if path.name.endswith(".index.json"):
        stored = _sharded(path)
    elif path.suffix == ".safetensors":
        outlines = _outlines(path)
        stored = StoredTensors(dict.fromkeys(outlines, path), outlines)
    else:
        tensors, others = _torch_file(path)
        return tensors, tensors, others
    return stored, stored.outlines, {}


def _file(path: Path) -> Path:
    if path.is_dir():
        found = sorted(path.glob("*.safetensors.index.json")) or sorted(path.glob("*.safetensors"))
        found = found or sorted(path.glob("*.pt")) or sorted(path.glob("*.bin"))
        if len(found) == 1:
            return found[0]
        raise RekindleError(
            expected=f"one checkpoint in the folder {path.name}",
            got=", ".join(each.name for each in found) or "none",
            fix="name the file itself",
        )
    if not path.exists():
        raise RekindleError(expected="a checkpoint", got=f"no file {path}", fix="check the path")
    return path


def _outlines(path: Path) -> dict[str, Tensor]:
    """Read the header of a safetensors file and see that the file is whole."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length)) if length < path.stat().st_size else {}
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        end = 8 + length + max((entry["data_offsets"][1] for entry in entries.values()), default=0)
        whole = bool(entries) and end <= path.stat().st_size
    except (struct.error, ValueError, KeyError, TypeError, UnicodeDecodeError):
        whole, entries = False, {}
    if not whole:
        raise RekindleError(
            expected=f"a whole safetensors file with tensors: {path.name}",
            got=f"{path.stat().st_size} bytes that are torn, or something else",
            fix="copy or download it again; a training that was killed while saving leaves such files",
        )
    return {name: _outline(entry["shape"], entry["dtype"]) for name, entry in entries.items()}


def _outline(shape: list[int], dtype: str) -> Tensor:
    """Return a tensor without values; a type that is not known here counts as bits without a meaning."""
    return torch.empty(shape, dtype=getattr(torch, TYPES.get(dtype, "bits8")), device="meta")


def _sharded(index: Path) -> StoredTensors:
    try:
        where: dict[str, str] = json.loads(index.read_text())["weight_map"]
    except (ValueError, KeyError, TypeError) as error:
        raise RekindleError(
            expected="an index with a weight_map", got=f"{index.name}: {error}", fix="copy or download it again"
        ) from error
    missing = sorted({name for name in where.values() if not (index.parent / name).exists()})
    if missing:
        raise RekindleError(
            expected=f"all shards that {index.name} names beside it",
            got=f"{missing[0]} is missing",
            fix="download it too",
        )
    outlines = {file: _outlines(index.parent / file) for file in dict.fromkeys(where.values())}
    return StoredTensors(
        {name: index.parent / file for name, file in where.items()}, {n: outlines[f][n] for n, f in where.items()}
    )


def _torch_file(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        raise RekindleError(
            expected=f"a file of torch.save that holds tensors and plain data: {path.name}",
            got=f"{type(error).__name__}: {str(error).splitlines()[0]}",
            fix="save model.state_dict(), best with safetensors; files that run code when loaded are refused",
        ) from error
    for key in NESTED:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    tensors, others = parted(content) if isinstance(content, Mapping) else ({}, {})
    if not tensors:
        raise RekindleError(
            expected="a state dict: names and tensors", got=f"a {type(content).__name__}", fix="save model.state_dict()"
        )
    return tensors, others


def parted(state: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a state dict, and of entries that hold tensors in another form what they are.

    Quantized layers keep theirs in tuples; counters, settings and the like hold none and are not told of.

    Example:
        >>> parted({"fc.weight": torch.zeros(1), "packed": (torch.zeros(1), None), "epoch": 3})[1]
        {'packed': 'no tensor but a tuple with tensors in it'}
    """
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    packed = [name for name, value in state.items() if name not in tensors and _holds_tensors(value)]
    return tensors, {name: f"no tensor but a {type(state[name]).__name__} with tensors in it" for name in packed}


def _holds_tensors(value: Any) -> bool:
    if isinstance(value, torch.ScriptObject):
        return True
    return any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(value))
