"""The Keeper: methods beside somebody's training loop."""

from rekindle.keeper.keeper import Keeper

__all__ = ["Keeper"]
