"""Every registered one-shot method, on every zoo model, keeps every promise."""

import pytest

from rekindle.methods.registry import list_methods, method
from rekindle.testing import ZOO, check_card
from rekindle.testing.contract import check_on

ONE_SHOT = [card.key for card in list_methods() if card.kind == "one-shot"]


@pytest.mark.parametrize("key", ONE_SHOT)
def test_card_is_complete_and_runs(key):
    check_card(method(key))


@pytest.mark.filterwarnings("ignore::rekindle.errors.NoEffectWarning")  # what a method does not apply to, it leaves
@pytest.mark.parametrize("member", ZOO)
@pytest.mark.parametrize("key", ONE_SHOT)
def test_contract(key, member):
    if ZOO[member].requires:
        pytest.importorskip(ZOO[member].requires)
    check_on(method(key), ZOO[member])
