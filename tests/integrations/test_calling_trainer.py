"""A callback finds the trainer that calls it."""

import pytest

from rekindle.errors import KeeperError
from rekindle.integrations.calling_trainer import calling_trainer


class Host:
    def train(self, resume_from_checkpoint=None):
        return self.loop(resume_from_checkpoint)

    def loop(self, resume_from_checkpoint):
        return Handler().event()


class Handler:
    def event(self):
        return calling_trainer(Host)


class Nested(Host):
    """A trainer that trains another one."""

    def loop(self, resume_from_checkpoint):
        return Host().train("inner")


def test_the_trainer_and_the_checkpoint_that_it_resumes():
    host = Host()
    assert host.train() == (host, None) and host.train("folder/checkpoint-3") == (host, "folder/checkpoint-3")


def test_it_is_the_nearest_one():
    assert Nested().train("outer")[1] == "inner"


def test_nobody_is_calling():
    with pytest.raises(KeeperError, match="callbacks="):
        Handler().event()
