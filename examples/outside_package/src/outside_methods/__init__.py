"""Methods of an outside package: one of each kind."""
