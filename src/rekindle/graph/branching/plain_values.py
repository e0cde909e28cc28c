"""Which values code may hold without a way to a model's units: numbers, text, functions of torch, settings."""

from __future__ import annotations

import contextlib
import dis
import enum
import logging
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

PLAIN = (int, float, complex, str, bytes, range, slice, torch.dtype, torch.device, torch.Size, torch.layout)
CODE = (type, ModuleType, BuiltinFunctionType, np.ufunc, logging.Logger)
MANY = (list, tuple, set, frozenset)


def is_torch(value: Any) -> bool:
    """Tell what torch, Python or its typing define."""
    return str(getattr(value, "__module__", "")).partition(".")[0] in ("torch", "builtins", "typing", "math", "numpy")


def is_plain(value: Any) -> bool:
    """Tell a value, or a tuple of such, that can hold no tensor, module or function of a model.

    Example:
        >>> is_plain((1, "gelu")), is_plain([1]), is_plain(None)
        (True, False, False)
    """
    if isinstance(value, tuple):
        return all(map(is_plain, value))
    return isinstance(value, (*PLAIN, *CODE, enum.Enum)) or (callable(value) and _is_torch_function(value))


def is_settings(value: Any) -> bool:
    """Tell a plain value, or a container or an object of such, as a configuration is: now no way leads on from it."""
    if value is None or is_plain(value):
        return True
    if isinstance(value, (torch.Tensor, nn.Module)) or callable(value):
        return False
    return all(each is None or is_plain(each) or _is_list_of_plain(each) for each in _inside(value))


def is_settings_or_followed(value: Any) -> bool:
    """Tell whether no way leads on from a value, or one that is read: a function written in Python."""
    return is_settings(value) or isinstance(value, FunctionType)


def outer_values(function: FunctionType) -> Iterator[Any]:
    """Yield what names in a function stand for that are defined outside of it, as far as they are now."""
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # not filled yet
            yield cell.cell_contents
    for name in sorted(_globals_of(function.__code__) & function.__globals__.keys()):
        yield function.__globals__[name]


def _globals_of(code: CodeType) -> set[str]:
    own = {each.argval for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return own.union(*(_globals_of(each) for each in code.co_consts if isinstance(each, CodeType)))


def modules_in(value: Any) -> Iterator[nn.Module]:
    """Yield a module, or the modules in a list, a dict or an object, one level deep."""
    if isinstance(value, nn.Module):
        yield value
    elif not isinstance(value, (*PLAIN, *CODE, torch.Tensor)):
        yield from (each for each in _inside(value) if isinstance(each, nn.Module))


def _is_torch_function(value: Any) -> bool:
    return is_torch(value) and not isinstance(value, nn.Module) and not hasattr(value, "__self__")


def _is_list_of_plain(value: Any) -> bool:
    return isinstance(value, (*MANY, Mapping)) and all(each is None or is_plain(each) for each in _inside(value))


def _inside(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, MANY) else list(getattr(value, "__dict__", {}).values())
