"""For experiments: models, data, protocols, runs and their report.

Nothing that treats a model needs it; the command line, the papers and the zoo of `rekindle.testing` do.
"""

from rekindle._lazy import lazy

__getattr__, __dir__ = lazy(__name__, {}, ("data", "models", "protocols", "report", "runs"))
