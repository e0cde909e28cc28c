"""How the sizes of everything in a model hang together, and what on the way is not positively homogeneous."""

from rekindle.graph.scaling import elementwise, mixing, products, rearrange
from rekindle.graph.scaling.registry import rule
from rekindle.graph.scaling.walk import homogeneity

__all__ = ["elementwise", "homogeneity", "mixing", "products", "rearrange", "rule"]
