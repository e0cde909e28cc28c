"""Names of tensors and modules: without what wrappers add, by patterns, and those of running statistics."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

WRAPPED = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")  # where wrappers keep what they wrap
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def canonical(name: str) -> str:
    """Return the name of a tensor or module as it is without wrappers inside the model.

    Example:
        >>> canonical("blocks.0._orig_mod.fc.weight"), canonical("head._checkpoint_wrapped_module")
        ('blocks.0.fc.weight', 'head')
    """
    return ".".join(part for part in name.split(".") if part not in WRAPPED)


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Tell whether a name fits one of the patterns, as a shell would read them.

    Example:
        >>> matches("head.weight", ["stem.*", "head.*"])
        True
    """
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def is_statistic(name: str) -> bool:
    """Tell the running statistics of a normalization layer from what is trained.

    Example:
        >>> is_statistic("stem.1.running_var"), is_statistic("stem.1.weight")
        (True, False)
    """
    return name.rpartition(".")[2] in STATISTICS
