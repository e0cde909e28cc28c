"""What is observed on a model: evidence for methods and metrics."""

from rekindle.observe.evidence import Evidence, Reference, gather

__all__ = ["Evidence", "Reference", "gather"]
