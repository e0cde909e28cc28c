"""The command line: `rekindle <verb>`, one file a verb.

A verb is a file in this folder with a function `run`; its file name is the verb, its docstring the help. Files whose
name begins with an underscore are no verbs. Verbs import what they need when they run, so that `rekindle --help`
answers without loading torch.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Callable, Sequence
from typing import Any

PROGRAM = "rekindle"
UNREAD = 128 + 13  # as a shell tells of a program that SIGPIPE ended
DESCRIPTION = "Keep PyTorch networks able to learn. `rekindle --version` prints the version."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code: 0, 2 when the user has to change something, 141 when output is not read.

    Args:
        arguments: Words after the program's name; those of the process when left out.
    """
    import tyro

    words = [*(sys.argv[1:] if arguments is None else arguments)]  # `list` is a verb here, once it has been imported
    if words == ["--version"]:
        print(f"{PROGRAM} {_version()}")
        return 0
    try:
        tyro.extras.subcommand_cli_from_dict(
            verbs(), prog=PROGRAM, description=DESCRIPTION, args=words or ["--help"], config=()
        )
        sys.stdout.flush()
    except ValueError as error:
        return _explain(error)
    except BrokenPipeError:
        return _unread()
    return 0


def verbs() -> dict[str, Callable[..., Any]]:
    """Return the verbs by name, found by their file names.

    Example:
        >>> {"demo", "list"} <= set(verbs())
        True
    """
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))
    return {name: importlib.import_module(f"{__name__}.{name}").run for name in names}


def _version() -> str:
    import rekindle

    return rekindle.__version__


def _explain(error: ValueError) -> int:
    """Print one of our own errors in its three parts; anything else is our mistake and keeps its traceback."""
    from rekindle.errors import RekindleError

    if not isinstance(error, RekindleError):
        raise error
    print(error, file=sys.stderr)
    return 2


def _unread() -> int:
    """Stop quietly when nobody reads on, as in `rekindle list | head -3`."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still to be flushed at exit goes nowhere
    return UNREAD
