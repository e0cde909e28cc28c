"""Checks that every method must pass, and a zoo of small models to run them on; public, for methods of your own."""

from rekindle.testing.contract import CHECKS, check_card, check_method, check_settings
from rekindle.testing.zoo import NOT_UNDERSTOOD, ZOO, ZooModel

__all__ = ["CHECKS", "NOT_UNDERSTOOD", "ZOO", "ZooModel", "check_card", "check_method", "check_settings"]
