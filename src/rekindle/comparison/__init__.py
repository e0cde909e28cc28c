"""Behind `rk.compare`: treat copies of a model, train them alike, and say what to do."""

from rekindle.comparison.comparing import compare
from rekindle.comparison.result import Comparison

__all__ = ["Comparison", "compare"]
