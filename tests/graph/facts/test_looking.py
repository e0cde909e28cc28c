"""Facts about objects: which they are, what they hold, and no fact that keeps anything alive."""

import gc
import logging
import weakref
from types import SimpleNamespace

import pytest

from rekindle.graph.facts import Facts, Unseen, looking


class Plain:
    def __init__(self, value):
        self.value = value


class Slotted:
    __slots__ = ("__hidden", "value")

    def __init__(self, value):
        self.value, self.__hidden = value, value


def facts(item):
    look = Facts()
    look.look(item)
    return look.found


@pytest.mark.parametrize("item", [Plain(1), Slotted(1), SimpleNamespace(value=1)], ids=lambda item: type(item).__name__)
def test_an_attribute_that_changes_is_seen(item):
    before = facts(item)
    assert before == facts(item)
    item.value = 2
    assert before != facts(item)
    item.value = 1
    assert before == facts(item)


def test_a_name_of_the_class_s_own_is_seen():
    item = Slotted(1)
    before = facts(item)
    item._Slotted__hidden = 2
    assert before != facts(item)


def test_another_object_is_another_even_at_the_same_place():
    held = SimpleNamespace(item=Plain(1))
    before = facts(held)
    held.item = None
    held.item = Plain(1)
    assert before != facts(held)


def test_an_object_that_holds_itself_has_an_end():
    item = Plain([])
    item.value.append(item)
    item.value.append(item.value)
    assert facts(item) == facts(item)


def test_a_loggers_and_a_trainer_s_insides_are_left_aside():
    class Trainer(Plain):
        pass

    logger, trainer = logging.getLogger("rekindle.test"), Trainer(1)
    before = facts([logger, trainer])
    logger.extra, trainer.value = object(), 2
    assert before == facts([logger, trainer])
    del logger.extra
    assert before != facts([logger, Trainer(1)])


def test_facts_keep_nothing_alive():
    item = Plain(1)
    item.me, item.method, item.function = item, item.__init__, (lambda held: lambda: held)(item)
    found, gone = facts(item), weakref.ref(item)
    del item
    gc.collect()
    assert gone() is None and found


def test_what_cannot_be_looked_into_is_said():
    with pytest.raises(Unseen):
        facts(iter([1]))
    with pytest.raises(Unseen):
        facts({Plain(1)})


def test_there_is_an_end_to_looking(monkeypatch):
    monkeypatch.setattr(looking, "MOST", 50)
    with pytest.raises(Unseen, match="more than"):
        facts([[n] for n in range(100)])


def test_no_code_of_the_object_is_run():
    class Touchy:
        def __init__(self):
            self.value = 1

        def __getattr__(self, name):
            raise AssertionError(name)

        def __getattribute__(self, name):
            raise AssertionError(name)

        def __eq__(self, other):
            raise AssertionError("==")

    item = Touchy()
    assert facts(item) == facts(item)
