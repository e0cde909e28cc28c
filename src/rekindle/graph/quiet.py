"""Torch's own messages are kept from the screen while something of ours runs; what the model prints is not."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, MutableMapping
from typing import Any

import torch.export._trace as torch_trace
import torch.fx.experimental.symbolic_shapes  # noqa: F401  (its logger is there before `torch_loggers` is asked)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings, torch's loggers and the code that a failing `torch.export` prints; then all is as it was."""
    loggers = [(logger, logger.disabled) for logger in torch_loggers()]
    prints = printing()
    before = prints.get("print")
    try:
        for logger, _ in loggers:
            logger.disabled = True
        prints["print"] = _nothing
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if before is None:
            prints.pop("print", None)
        else:
            prints["print"] = before
        for logger, disabled in loggers:
            logger.disabled = disabled


def torch_loggers() -> list[logging.Logger]:
    """Return all loggers of torch that there are."""
    known = dict(logging.root.manager.loggerDict).items()
    return [each for name, each in known if name.partition(".")[0] == "torch" and isinstance(each, logging.Logger)]


def printing() -> MutableMapping[str, Any]:
    """Return the names of the module that prints the graph of a failed export, to sys.stderr and not by a logger.

    To turn sys.stderr away would take what other threads and the model itself write as well.
    """
    return vars(torch_trace)


def _nothing(*_: Any, **__: Any) -> None:
    """Print nothing."""
