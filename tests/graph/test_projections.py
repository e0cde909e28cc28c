"""Queries, keys and values by name: what is believed, what is doubted, what is neither."""

import pytest
import torch

from rekindle.graph.projections import Projection, is_attention, projection, roles_are_known, split
from rekindle.graph.regions import MatrixView
from rekindle.graph.weight import Weight

QKV = ("q", "k", "v")


@pytest.mark.parametrize("name", ["c_attn", "qkv", "in_proj", "in_proj_weight", "Wqkv", "qkv_proj", "to_qkv"])
def test_three_equal_blocks_where_all_public_code_means_that(name):
    assert projection(name, 24, 8, attention=True) == Projection(QKV)
    assert projection(name, 24, 8, attention=False) == Projection(QKV)
    assert projection(name, 16, 8, attention=True).unclear and not projection(name, 16, 8, attention=True).roles
    assert projection(name, 20, 8, attention=True).unclear, "grouped queries"


@pytest.mark.parametrize(
    ("name", "out"),
    [
        ("query_key_value", 24),  # GPT-NeoX, Bloom, Falcon: head by head
        ("wqkv", 24),  # InternLM: group by group
        ("kv", 16),
        ("to_kv", 16),
        ("key_value", 16),
        ("kv_b_proj", 40),
        ("qk", 16),
        ("fused_qkv", 24),
        ("W_pack", 24),
        ("0", 16),
    ],
)
def test_what_may_hold_several_is_doubted_in_attention(name, out):
    told = projection(name, out, 8, attention=True)
    assert told.unclear and not told.roles


@pytest.mark.parametrize("owner", ["GPTBigCodeAttention", "CodeGenAttention", "DisentangledSelfAttention"])
def test_classes_that_lay_them_out_in_another_way_are_doubted(owner):
    for name in ("c_attn", "qkv_proj", "in_proj"):
        assert owner in projection(name, 24, 8, attention=True, owner=owner).unclear
    assert not projection("c_proj", 8, 8, attention=True, owner=owner).unclear
    assert projection("c_attn", 24, 8, attention=True, owner="GPT2Attention").roles == QKV


@pytest.mark.parametrize(
    ("name", "role"),
    [("q_proj", "q"), ("key", "k"), ("to_v", "v"), ("Wq", "q"), ("q_lin", "q"), ("linear_k", "k"), ("value_proj", "v")],
)
def test_one_role_inside_attention_only(name, role):
    assert projection(name, 16, 8, attention=True).roles == (role,)
    assert projection(name, 16, 8, attention=False) == Projection()


@pytest.mark.parametrize("name", ["out_proj", "fc1", "dense", "queries_head", "network", "skv2", ""])
def test_other_names_tell_nothing(name):
    assert projection(name, 8, 8, attention=True) == Projection() == projection(name, 16, 8, attention=False)
    assert projection("in_proj", 40, 8, attention=False) == Projection(), "a state space model"


def test_attention_by_name():
    assert is_attention("LlamaAttention") and is_attention("self_attn") and not is_attention("Attend")


def test_blocks_are_those_of_the_tensor():
    tensor = torch.arange(24.0).reshape(2, 12)  # GPT-2's Conv1D, [in, out]
    weight = Weight("c_attn.weight", "c_attn.weight", MatrixView((2, 12), (1,), (0,)), "hidden", (2, 12))
    for part, role, block in zip(split(weight, QKV), QKV, tensor.T.chunk(3), strict=True):
        assert (part.name, part.role, part.tensor) == (f"c_attn.weight[{role}]", role, "c_attn.weight")
        assert torch.equal(part.view.read(tensor)[0], block)
    assert split(weight, ()) == [weight]
    (alone,) = split(weight, ("k",))
    assert (alone.name, alone.role, alone.view) == ("c_attn.weight", "k", weight.view)


def test_roles_are_known_where_all_attention_has_queries_and_keys():
    plain = {"h.0.attn.c_attn": Projection(QKV), "h.0.attn.c_proj": Projection(), "head": Projection()}
    assert roles_are_known(plain, ["h.0.attn"])
    assert roles_are_known(plain, ["h.0.attn", "h.0.attn_dropout"]), "a place without layers does not count"
    assert not roles_are_known(plain, [])
    assert not roles_are_known({**plain, "h.1.attn.mix": Projection()}, ["h.0.attn", "h.1.attn"])
    assert not roles_are_known({**plain, "h.1.attn.w": Projection(unclear="doubt")}, ["h.0.attn"])
    assert not roles_are_known({**plain, "block.qkv": Projection(QKV)}, ["h.0.attn"]), "outside of attention"
    assert not roles_are_known({**plain, "block.query": Projection()}, ["h.0.attn"]), "looks like another"
    assert roles_are_known({"q": Projection(("q",)), "k": Projection(("k",))}, [""]), "the model is attention itself"
