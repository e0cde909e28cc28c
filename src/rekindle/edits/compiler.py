"""Make torch.compile look at a model again."""

from __future__ import annotations

import sys

import torch


def reset_compiler() -> None:
    """Make torch.compile look again: it does not notice hooks that come or go after it has compiled a module."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
