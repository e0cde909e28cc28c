"""By how much each operation can spread two inputs apart: what `metrics.lipschitz_bound` multiplies and adds up."""

from rekindle.graph.lipschitz import elementwise, layers, mixing
from rekindle.graph.lipschitz.own import Own
from rekindle.graph.lipschitz.steps import NOT_FOLLOWED, Step, Steps, steps_of

__all__ = ["NOT_FOLLOWED", "Own", "Step", "Steps", "elementwise", "layers", "mixing", "steps_of"]
