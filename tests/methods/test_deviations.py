"""What we do differently is on the cards: each deviation that was settled is looked for by a short phrase.

The list is that of the project's notes on methods: its tables, the defects of published code that ours does not have,
and what was settled later.
"""

import pytest

import rekindle as rk

CARDS = {card.key: card for card in rk.list_methods()}
RECYCLERS = ("cbp", "redo", "regrama", "snr")

NAMED = [
    # one-shot methods
    ("fire", "zero matrix stays zero"),
    ("fire", "group by group"),
    ("fire", "two polynomials"),
    ("shrink_perturb", "fresh draw"),
    ("shrink_perturb", "published code keeps them"),
    ("dash", "1x1 kernel makes this a sign rule"),
    ("dash", "channels_last (published code: no effect there)"),
    ("dash", "published code keeps them"),
    ("full_reset", "replaced modules never reach it"),
    ("head_reset", "read from the traced graph"),
    ("head_reset", "tied to an embedding"),
    ("layerwise", "after the block's activation"),
    ("layerwise", "before every module that reads the activation"),
    ("layerwise", "Logits are not normalized unless logits=True"),
    ("layerwise", "taken from the initializer"),
    ("layerwise", "differ from round to round"),
    ("welsr", "tensor by tensor"),
    ("wels", "not stored"),
    ("dsd", "within each tensor"),
    ("rescale", "not only a chain"),
    ("rescale", "before a normalization"),
    ("dirac_reset", "also biases"),
    ("dirac_reset", "Linear weights, to which torch's dirac_ does not apply"),
    ("plasticity_injection", "the head that should be frozen keeps training"),
    ("plasticity_injection", "the papers inject all fully connected layers"),
    ("mutually_frozen", "The bias goes with the row"),
    ("doubly_sparse", "One-dimensional tensors"),
    ("mono_sparse", "also to biases"),
    # per-step methods
    ("soft_rescale", "Residual branches are ours, not the paper's"),
    ("soft_rescale", "Biases before a normalization"),
    ("l2", "which=weights"),
    ("l2_init", "FIRE speaks of weight matrices"),
    ("parseval", "on the smaller side"),
    ("parseval", "a matrix with more rows than columns cannot bring to s I"),
    ("selective_reinit", "no moving average of utilities"),
    ("selective_reinit", "per tensor"),
    ("selective_reinit", "begin again for the whole tensor"),
    ("spectral", "Gains, the scales of normalization layers, are left out"),
    ("spectral", "The vector moves once a step"),
    ("weight_clip", "sqrt(3) std of a normal one"),
    ("weight_clip", "Published code takes them for biases"),
    ("hare_tortoise", "never share memory"),
    ("hare_tortoise", "Published code counts epochs"),
    # recyclers
    ("cbp", "after norm and nonlinearity"),
    ("cbp", "without decay"),
    ("cbp", "pairs layers across a residual sum"),
    ("cbp", "zeroes one of four"),
    ("cbp", "published: zero"),
    ("redo", "last hidden layer (which published code never recycles)"),
    ("redo", "published code: test images"),
    ("redo", "on a copy, so that nothing happens"),
    ("redo", "scrambles the channels"),
    ("snr", "above zero for the authors"),
    ("snr", "A leaky unit with a large negative bias never fires for them"),
    ("snr", "published: zero"),
    ("snr", "on a copy, so that nothing happens"),
    ("snr", "scrambles the channels"),
    ("regrama", "not that of its activation"),
    *((key, "zeros win over the fresh draw") for key in RECYCLERS),
    *((key, "drawn by its layer's own initializer") for key in RECYCLERS),
    *((key, "is held back, and keeps its weights and its history") for key in RECYCLERS),
    *((key, "begin again for the whole tensor") for key in RECYCLERS),
    # optimizers
    ("muon", "as a view [out, in * kernel]"),
    ("muon", "Grouped and depthwise convolutions"),
]


@pytest.mark.parametrize(("key", "phrase"), NAMED)
def test_a_settled_deviation_is_on_the_card(key, phrase):
    assert any(phrase in deviation for deviation in CARDS[key].deviations)


def test_every_method_has_one_in_the_list():
    assert {key for key, _ in NAMED} == set(CARDS)
