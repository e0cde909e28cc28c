"""Observations: whatever was seen, as one flat mapping from keys to plain values that can be compared bit by bit."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lookup import ObserverError
from torch import Tensor, nn

FEW = 8  # numbers of a list that are noted one by one; longer lists are noted as a digest
TIMES = ("seconds", "boundary_seconds", "stage_seconds", "time")
ELSEWHERE = ("versions",)  # of packages and the machine


class Seen:
    """Collects observations.

    Args:
        places: Folders and what to call them in texts: no observation may depend on where it was made.
    """

    def __init__(self, places: Mapping[Path, str]) -> None:
        self.places = {str(path): name for path, name in places.items()}
        self.values: dict[str, Any] = {}

    def note(self, key: str, value: Any) -> None:
        """Note a value; what has parts is noted part by part."""
        plain = self._plain(value)
        if plain is not None:
            if key in self.values:
                raise ObserverError(f"{key} was noted before")
            self.values[key] = plain[0]
            return
        for name, each in _parts(value):
            self.note(f"{key}/{name}", each)

    def attempt(self, key: str, function: Callable[[], Any]) -> Any:
        """Call a function and note what it raises and what it warns of; return its result, or None."""
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            try:
                result = function()
            except ObserverError:  # our own mistake, and no behavior of the library
                raise
            except Exception as error:
                self.note(f"{key}/raised", f"{type(error).__name__}: {error}")
                result = None
        told = dict.fromkeys(f"{w.category.__name__}: {w.message}" for w in heard if self._is_ours(w))
        if told:
            self.note(f"{key}/warned", list(told))
        return result

    def _is_ours(self, warning: warnings.WarningMessage) -> bool:
        ours = warning.category.__module__.startswith("rekindle")
        return ours or any(warning.filename.startswith(place) for place in self.places)

    def _plain(self, value: Any) -> tuple[Any] | None:
        """Return the value as JSON can hold it, in a tuple; None for what has parts."""
        if value is None or isinstance(value, (bool, int)):
            return (value,)
        if isinstance(value, str | os.PathLike):
            return (self._clean(os.fspath(value)),)
        if isinstance(value, (float, np.floating)):
            return (float(value).hex(),)
        if isinstance(value, np.integer | np.bool_):
            return (value.item(),)
        if isinstance(value, (Tensor, np.ndarray)):
            return (digest(value),)
        if isinstance(value, (list, tuple)) and len(value) > FEW and all(isinstance(v, (int, float)) for v in value):
            return (f"{len(value)} numbers {_hash(' '.join(map(repr, value)).encode())}",)
        if isinstance(value, (Mapping, Sequence, Set, nn.Module)) or _is_dataclass(value):
            return None
        return ("a function" if callable(value) else f"a {type(value).__name__}",)

    def _clean(self, text: str) -> str:
        for place, name in sorted(self.places.items(), key=lambda item: -len(item[0])):
            text = text.replace(place, name)
        text = re.sub(r"\b0x[0-9a-f]{6,}", "0x", text)
        return re.sub(r'(File "[^"]*", line) \d+', r"\1 N", text)


def digest(values: Tensor | np.ndarray[Any, Any]) -> str:
    """Return bits, type and shape of a tensor or an array; of a tensor also an unusual layout."""
    if isinstance(values, np.ndarray):
        return f"{_hash(np.ascontiguousarray(values).tobytes())} {values.dtype} {values.shape}"
    tensor = values.detach().cpu()
    data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
    layout = "" if tensor.is_contiguous() else f" strides {tensor.stride()}"
    return f"{_hash(data)} {tensor.dtype} {tuple(tensor.shape)}{layout}"


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Return all parameters and buffers by name."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def untimed(value: Any) -> Any:
    """Return plain data without times, memory and versions, at every depth."""
    if isinstance(value, Mapping):
        return {name: untimed(each) for name, each in value.items() if name not in (*TIMES, *ELSEWHERE)}
    return [untimed(each) for each in value] if isinstance(value, (list, tuple)) else value


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _is_dataclass(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _parts(value: Any) -> list[tuple[str, Any]]:
    """Return the parts of a value, and first its kind or order, so that nothing can come or go unnoticed."""
    if isinstance(value, nn.Module):
        return [("(kind)", type(value).__name__), *weights(value).items()]
    if _is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value) if not field.name.startswith("_")]
        return [("(kind)", type(value).__name__), *((name, getattr(value, name)) for name in fields)]
    if isinstance(value, Mapping):
        return [("(order)", " ".join(map(str, value))), *((str(name), each) for name, each in value.items())]
    listed = sorted(value, key=str) if isinstance(value, Set) else list(value)
    return [("(length)", len(listed)), *((str(n), each) for n, each in enumerate(listed))]
