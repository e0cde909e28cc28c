"""Facts about functions and classes: their code, what they close over, and who was put in their place."""

import functools
import threading
import types
import weakref

import pytest
import torch

from rekindle.graph.facts import Facts


def facts(item):
    look = Facts()
    look.look(item)
    return look.found


def closing_over(value):
    def function(x, y=1, *, z=2):
        return value

    return function


def cell(function):
    function.__closure__[0].cell_contents = 2


CHANGES = {
    "cell": cell,
    "emptied cell": lambda function: function.__closure__[0].__delattr__("cell_contents"),
    "code": lambda function: setattr(function, "__code__", closing_over_another().__code__),
    "default": lambda function: setattr(function, "__defaults__", (3,)),
    "keyword default": lambda function: setattr(function, "__kwdefaults__", {"z": 3}),
    "attribute": lambda function: setattr(function, "flag", True),
}


def closing_over_another():
    value = 1

    def function(x, y=1, *, z=2):
        return value + 1

    return function


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize(
    "held",
    [lambda f: f, lambda f: functools.partial(f, 1), lambda f: functools.wraps(f)(lambda: f), staticmethod, property],
    ids=["itself", "partial", "wrapped", "static", "property"],
)
def test_a_change_of_a_function_is_seen(change, held):
    function = closing_over(1)
    item = held(function)
    before = facts(item)
    assert before == facts(item)
    change(function)
    assert before != facts(item)


def test_a_method_belongs_to_its_object():
    class Owner:
        def act(self):
            """Do something."""

    one = Owner()
    before = facts(one.act)
    assert before == facts(one.act)
    assert before != facts(Owner().act)
    one.flag = True
    assert before != facts(one.act)


def test_a_class_is_seen_with_its_objects_and_their_bases():
    class Base:
        flag = 1

    class Owner(Base):
        def act(self):
            """Do something."""

    item, held = Owner(), [Owner]
    for change in (
        lambda: setattr(Owner, "act", lambda self: None),
        lambda: setattr(Base, "flag", 2),
        lambda: setattr(Base, "more", property(lambda self: 1)),
    ):
        before, alone = facts(item), facts(held)
        change()
        assert before != facts(item)
        assert alone != facts(held), "a class that is held may be a configuration"


def test_classes_of_packages_that_are_closed_are_known_by_which_they_are():
    assert facts(threading.Thread) == facts(threading.Thread) != facts(threading.Timer)
    assert len(facts(threading.Thread)) == 1


def test_functions_of_c_are_known_by_which_they_are_or_by_what_they_belong_to():
    items = [1]
    before = facts(items.append)
    assert facts(torch.relu) == facts(torch.relu) != facts(torch.sigmoid)
    items.append(2)
    assert before != facts(items.append)


def test_a_weak_reference_leads_to_what_it_is_of():
    item = closing_over(1)
    before = facts(weakref.ref(item))
    item.flag = True
    assert before != facts(weakref.ref(item))
    assert facts(types) == facts(types) != facts(functools)


def test_what_the_compiler_wraps_is_seen_inside():
    def act(x):
        return x

    compiled = torch.compiler.disable(act)
    before = facts(compiled)
    assert before == facts(compiled)
    act.flag = True
    assert before != facts(compiled)
