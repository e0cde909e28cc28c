import pytest

from rekindle.errors import SettingsError
from rekindle.methods.frozen_settings import settings
from rekindle.methods.spec import choose, fill, split


@settings
class Example:
    size: int = 1
    names: tuple[str, ...] = ()
    limit: float | None = 2.0


def test_values_may_hold_colons_and_equal_signs():
    assert split("task_change:to=synthetic:signal=2,decay=0.9") == (
        "task_change",
        {"to": "synthetic:signal=2", "decay": "0.9"},
    )


def test_values_are_read_as_their_types():
    assert fill(Example, "example:size=3,names=a|b,limit=none") == Example(size=3, names=("a", "b"), limit=None)


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        ("example:siz=3", "size, names, limit"),
        ("example:size=many", "size of example: int"),
        ("example:size", "key=value"),
        ("example:=3", "key=value"),
    ],
)
def test_mistakes_are_told(spec, part):
    with pytest.raises(SettingsError) as told:
        fill(Example, spec)
    assert part in str(told.value)


def test_fixed_arguments_are_not_for_the_user():
    def make(size: int, width: int = 1) -> int:
        return size * width

    assert fill(make, "make:width=3", {"size": 2}) == 6
    with pytest.raises(SettingsError, match="settings of make: width"):
        fill(make, "make:size=3", {"size": 2})


def test_unknown_name():
    with pytest.raises(SettingsError, match="networks: a, b"):
        choose("networks", "c:x=1", {"a": 1, "b": 2})
