"""Which rows of a weight are queries, keys and values, head by head; what the others are for."""

import numpy as np
import torch

from rekindle.graph.regions import MatrixView
from rekindle.graph.roles import attention_roles, weights_of
from rekindle.graph.trace_log import Location, TraceLog, WeightUse


def log_of(rows, columns=2):
    log = TraceLog()
    out, in_ = log.axis("w", (rows, columns), (0,)), log.axis("w", (rows, columns), (1,))
    view = MatrixView((rows, columns), (0,), (1,))
    log.weights.append(WeightUse("w", False, view, out, in_, True, False, Location("m", "aten.linear")))
    return log, out, in_


def weights(log, leaving=()):
    root = log.components()
    away = np.zeros(log.total, dtype=bool)
    away[list(leaving)] = True
    return weights_of(log, root, root, {"w": (6, 2)}, away)


def test_the_first_role_counts_and_heads_are_kept():
    log, out, _ = log_of(6)
    log.roles += [("q", torch.tensor([[4, 5], [0, 1]])), ("k", torch.tensor([[0, 2]]))]
    roles = attention_roles(log, log.components())
    assert roles.letter[:6].tolist() == [1, 1, 2, 0, 1, 1] and roles.head[:6].tolist() == [1, 1, 0, 0, 0, 0]


def test_a_fused_tensor_is_parted_by_role_rows_head_by_head():
    log, out, _ = log_of(6)
    log.roles += [("q", torch.tensor([[2, 3], [0, 1]])), ("v", torch.tensor([[4, 5]]))]
    found = weights(log)
    assert [(weight.name, weight.role, weight.heads) for weight in found] == [("w[q]", "q", 2), ("w[v]", "v", 1)]
    assert [weight.view.rows.tolist() for weight in found] == [[2, 3, 0, 1], [4, 5]]


def test_plain_roles():
    log, out, in_ = log_of(6)
    assert [weight.role for weight in weights(log)] == ["hidden"]
    assert [weight.role for weight in weights(log, leaving=out.tolist())] == ["head"]
    log.reads.append((out[:1], torch.empty(0, dtype=torch.long)))  # one of its units is read: it is no head
    assert [weight.role for weight in weights(log, leaving=out.tolist())] == ["hidden"]
    log.roles.append(("v", in_[None]))
    assert [weight.role for weight in weights(log)] == ["o"]
