"""Methods by their spec strings."""

import pytest

import rekindle as rk
from rekindle.errors import SettingsError
from rekindle.methods.one_shot.fire import Fire
from rekindle.methods.registry import methods


def test_spec_strings():
    assert rk.method("fire") == Fire()
    assert rk.method("fire: iterations=5, solver=quintic ,skip=head.*|stem.*") == Fire(
        iterations=5, solver="quintic", skip=("head.*", "stem.*")
    )
    assert rk.method("shrink_perturb:perturb=none").perturb is None
    assert [type(m).__name__ for m in methods("fire+shrink_perturb:shrink=0.1")] == ["Fire", "ShrinkPerturb"]
    assert methods([Fire(), "full_reset"])[1] == rk.method("full_reset")


@pytest.mark.parametrize(
    ("spec", "expected", "got"),
    [
        ("fyre", "dash, dirac_reset, ", "'fyre'"),
        ("fire:iterations", "key=value", "'iterations'"),
        ("fire:iteration=5", "settings of Fire: solver", "iteration='5'"),
        ("fire:iterations=many", "Fire.iterations: int", "'many'"),
        ("fire:iterations=0", "greater than or equal to 1", "'0'"),
        ("fire:blend=nan", "Fire.blend", "nan"),
        ("fire:solver=magic", "Fire.solver", "'magic'"),
        ("fire+fire", "the spec of one method", "names 2"),
    ],
)
def test_nonsense_is_told_in_three_parts(spec, expected, got):
    with pytest.raises(SettingsError) as caught:
        rk.method(spec)
    assert expected in caught.value.expected and got in caught.value.got and caught.value.fix


@pytest.mark.parametrize(
    ("typed", "key"), [("swr", "soft_rescale"), ("S&P", "shrink_perturb"), ("l2init", "l2_init"), ("lw", "layerwise")]
)
def test_other_spellings_are_answered_with_the_one(typed, key):
    with pytest.raises(SettingsError, match=f"its one spelling is '{key}'"):
        rk.method(typed)


def test_no_alias_is_a_key_or_stands_twice():
    every = [alias for card in rk.list_methods() for alias in card.aliases]
    assert len(every) == len(set(every)) and not set(every) & {card.key for card in rk.list_methods()}


def test_public_names():
    assert "fire_" in dir(rk) and "trace" in dir(rk)
    assert rk.lab.models.MLP is not None
    with pytest.raises(AttributeError, match="no attribute 'fyre_'"):
        rk.fyre_  # noqa: B018
