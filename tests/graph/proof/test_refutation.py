"""What is said of a wrong group."""

from rekindle.graph.groups import Group
from rekindle.graph.proof.refutation import read_elsewhere


def test_the_group_and_the_place_are_named():
    error = read_elsewhere(Group("fc1", 3, "hidden", (), (), ()), "a change in fc2: aten.addmm")
    assert "fc1" in str(error) and "fc2: aten.addmm: something reads its units" in str(error)
