"""Making torch.compile look again."""

import sys

import torch

from rekindle.edits.compiler import reset_compiler


def test_without_a_compiler_it_is_not_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    reset_compiler()
    assert "torch._dynamo" not in sys.modules


def test_with_one_it_is_reset(monkeypatch):
    calls = []
    monkeypatch.setitem(sys.modules, "torch._dynamo", object())
    monkeypatch.setattr(torch.compiler, "reset", lambda: calls.append(1))
    reset_compiler()
    assert calls == [1]
