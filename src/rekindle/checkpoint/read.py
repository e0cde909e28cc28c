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

from rekindle.errors import RekindleError

NESTED = ("state_dict", "model", "model_state_dict", "module")  # where trainers put the weights


class StoredTensors(Mapping[str, Tensor]):
    """The tensors of a checkpoint; each is read when it is asked for, and not kept.

    Attributes:
        shapes: Shape of each tensor, known without reading it.
    """

    def __init__(self, files: Mapping[str, Path], shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Take for each tensor the file that holds it."""
        self._files, self.shapes = dict(files), dict(shapes)

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


def open_checkpoint(path: str | os.PathLike[str]) -> tuple[Mapping[str, Tensor], dict[str, tuple[int, ...]]]:
    """Return the tensors of a checkpoint and their shapes.

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
        shapes = _shapes(path)
        stored = StoredTensors(dict.fromkeys(shapes, path), shapes)
    else:
        tensors = _torch_file(path)
        return tensors, {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    return stored, stored.shapes


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


def _shapes(path: Path) -> dict[str, tuple[int, ...]]:
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
    return {name: tuple(entry["shape"]) for name, entry in entries.items()}


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
    shapes = {file: _shapes(index.parent / file) for file in dict.fromkeys(where.values())}
    return StoredTensors(
        {name: index.parent / file for name, file in where.items()}, {n: shapes[f][n] for n, f in where.items()}
    )


def _torch_file(path: Path) -> dict[str, Tensor]:
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
    tensors = {k: v for k, v in content.items() if isinstance(v, Tensor)} if isinstance(content, Mapping) else {}
    if not tensors:
        raise RekindleError(
            expected="a state dict: names and tensors", got=f"a {type(content).__name__}", fix="save model.state_dict()"
        )
    return tensors
