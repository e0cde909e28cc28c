"""What objects hold, as facts that can be compared: values, code, modules."""

from rekindle.graph.facts import code, values
from rekindle.graph.facts.looking import Facts, Unseen
from rekindle.graph.facts.modules import HOOKS, hooks, model

__all__ = ["HOOKS", "Facts", "Unseen", "code", "hooks", "model", "values"]
