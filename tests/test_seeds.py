"""Draws depend on (seed, tensor, reason) and on nothing else."""

import torch

from rekindle.seeds import generator, global_seed, seed_of


def test_all_three_parts_count():
    seeds = {seed_of(s, n, r) for s in (0, 1) for n in ("a", "b") for r in ("x", "y")}
    assert len(seeds) == 8 and all(0 <= s < 2**63 for s in seeds)


def test_the_seed_of_a_name_never_changes():
    assert seed_of(0, "fc.weight", "full_reset") == 2317297932965623732  # results on disk depend on it


def test_the_global_generator_is_put_back():
    before = torch.get_rng_state()
    generator(0, "a", "b")
    with global_seed(0, "a", "b"):
        first = torch.rand(1)
    with global_seed(0, "a", "b"):
        assert torch.equal(first, torch.rand(1))
    assert torch.equal(before, torch.get_rng_state())
