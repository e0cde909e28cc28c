"""How the sizes of everything in a model hang together, and what on the way is not positively homogeneous."""
