"""One kind of error: what was expected, what came, what to do."""

from __future__ import annotations


class RekindleError(ValueError):
    """Base of everything that rekindle raises on purpose.

    Args:
        expected: What the call needed.
        got: What it was given instead.
        fix: What the user can do about it.

    Example:
        >>> print(RekindleError(expected="a finite weight", got="NaN in fc.weight", fix="load an earlier checkpoint"))
        expected: a finite weight
        got: NaN in fc.weight
        what to do: load an earlier checkpoint
    """

    def __init__(self, *, expected: str, got: str, fix: str) -> None:
        super().__init__(f"expected: {expected}\ngot: {got}\nwhat to do: {fix}")
        self.expected, self.got, self.fix = expected, got, fix

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with the keyword arguments, so that worker processes can send it home."""
        return (_rebuild, (type(self), self.expected, self.got, self.fix))


def _rebuild(kind: type[RekindleError], expected: str, got: str, fix: str) -> RekindleError:
    return kind(expected=expected, got=got, fix=fix)


class GraphError(RekindleError):
    """A model could not be traced, or a graph does not hold on the model."""


class SettingsError(RekindleError):
    """A method was asked for with settings that do not exist or make no sense."""


class PlanError(RekindleError):
    """A method cannot be planned with what it was given."""


class EditError(RekindleError):
    """An edit cannot be carried out; nothing was written."""


class NoEffectWarning(UserWarning):
    """A plan changes nothing."""


class KeeperError(RekindleError):
    """A Keeper was used in a way that cannot work."""


class KeeperWarning(UserWarning):
    """A Keeper is not called as it must be to do its work."""


class PluginWarning(UserWarning):
    """A method of another package is left out: it cannot be loaded, or its name is taken."""
