import pytest

from rekindle.errors import SettingsError
from rekindle.training.schedules import ConstantRate, Decay, Plateau, Steps, schedule


def test_factors_by_hand():
    assert [Decay(by=0.5).factor(epoch, 0) for epoch in range(3)] == [1, 0.5, 0.25]
    assert [Steps(at=(2, 3), by=0.1).factor(e, 0) for e in range(5)] == pytest.approx([1, 1, 0.1, 0.01, 0.01])
    assert [Plateau(by=0.5).factor(9, plateaus) for plateaus in range(3)] == [1, 0.5, 0.25]


def test_specs():
    assert schedule("constant") == ConstantRate()
    assert schedule("decay:by=0.97") == Decay(by=0.97)
    assert schedule("plateau:patience=3") == Plateau(patience=3)


@pytest.mark.parametrize("wrong", ["cosine", "decay:by=0", "decay:by=2", "plateau:patience=0"])
def test_mistakes(wrong):
    with pytest.raises(SettingsError):
        schedule(wrong)
