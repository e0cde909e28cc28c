"""Trace a model into weights and unit groups, and prove it on the model."""

from rekindle.graph.groups import Group, Slot
from rekindle.graph.tracing import trace
from rekindle.graph.unit_graph import UnitGraph
from rekindle.graph.verification import Verification, verify
from rekindle.graph.weight import Weight

__all__ = ["Group", "Slot", "UnitGraph", "Verification", "Weight", "trace", "verify"]
