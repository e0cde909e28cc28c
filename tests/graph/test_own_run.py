"""Whether the model is being run by us: for the time of a context, and in this thread only."""

import threading

import pytest

from rekindle.graph.own_run import is_own_run, is_watching, own_run, set_own_run, watching


def test_for_the_time_of_the_context_also_when_it_fails():
    assert not is_own_run()
    with own_run():
        with own_run():
            assert is_own_run()
        assert is_own_run()
    with pytest.raises(KeyError), own_run():
        raise KeyError
    assert not is_own_run()


def test_another_thread_is_not_ours():
    seen = []
    with own_run():
        other = threading.Thread(target=lambda: seen.append(is_own_run()))
        other.start()
        other.join()
    assert seen == [False]


def test_it_can_be_put_back():
    with own_run():
        set_own_run(False)
        assert not is_own_run()
    assert not is_own_run()


def test_a_hook_that_watches_is_marked():
    def hook(*_):
        """Look."""

    assert not is_watching(hook)
    assert watching(hook) is hook and is_watching(hook)
