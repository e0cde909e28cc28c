"""Trace a model into weights and unit groups, and prove it on the model."""

from rekindle.graph.trace import trace
from rekindle.graph.unit_graph import Group, Slot, UnitGraph
from rekindle.graph.verify import Verification, verify
from rekindle.graph.weight import Weight

__all__ = ["Group", "Slot", "UnitGraph", "Verification", "Weight", "trace", "verify"]
