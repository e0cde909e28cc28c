"""What a trial of a group can find, in words."""

from __future__ import annotations

from rekindle.errors import GraphError
from rekindle.graph.groups import Group

SILENT = 1e-6  # relative change that still counts as none
SEEN = 1e-12  # a computation that nothing reaches repeats itself bit by bit
BREAKS = "the model breaks when its outgoing weights are zero"
NEVER_SILENT = "its reader's weight is computed from the parameter: it cannot be silenced"
MAY_STAY = "its reader's weight is computed from the parameter: on the outputs alone it cannot be told if it is silent"
OWN_PRODUCT = "its units are multiplied with each other"
WITHOUT_EFFECT = "without effect on the output for this example: dead units, or an example that is too short"


def read_elsewhere(group: Group, where: str) -> GraphError:
    """Return the error for a group whose units are read by something that the graph does not know."""
    return GraphError(
        expected=f"no change behind the outgoing weights of group {group.name} when they are silent",
        got=f"{where}: something reads its units that the graph does not know",
        fix="please report this model; until then leave the group out of unit-wise methods",
    )
