"""Every registered one-shot method, on every zoo model, keeps every promise."""

import pytest

from rekindle.methods.registry import list_methods, method
from rekindle.testing import CHECKS, ZOO, check_card

ONE_SHOT = [card.key for card in list_methods() if card.kind == "one-shot"]


@pytest.mark.parametrize("key", ONE_SHOT)
def test_card_is_complete_and_runs(key):
    check_card(method(key))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("member", ZOO)
@pytest.mark.parametrize("key", ONE_SHOT)
def test_contract(key, member, check):
    if ZOO[member].requires:
        pytest.importorskip(ZOO[member].requires)
    check(method(key), ZOO[member])
