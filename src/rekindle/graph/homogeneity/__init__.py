"""How the sizes of everything in a model hang together, and what on the way is not positively homogeneous."""

from rekindle.graph.homogeneity import elementwise, mixing, moving, products
from rekindle.graph.homogeneity.registry import rule
from rekindle.graph.homogeneity.walk import homogeneity

__all__ = ["elementwise", "homogeneity", "mixing", "moving", "products", "rule"]
