"""Every registered method keeps every promise of its kind: one-shot methods and recyclers on every zoo model."""

import pytest

from rekindle.methods.registry import keys_of, method
from rekindle.testing import ZOO, check_card, check_settings
from rekindle.testing.contract import check_on

# Settings with which methods act within a few steps; all others do with their defaults.
EAGER = {
    "redo": "redo:period=1,threshold=0.9",
    "cbp": "cbp:rate=0.4,maturity=0",
    "snr": "snr:longest=1,firings=50",
    "regrama": "regrama:period=2,threshold=0.9",
    "selective_reinit": "selective_reinit:period=1,rate=0.1",
    "hare_tortoise": "hare_tortoise:period=2,momentum=0.5",
    "soft_rescale": "soft_rescale:strength=0.2",
    "weight_clip": "weight_clip:kappa=0.5",
}
BESIDE_TRAINING = ["mlp", "layer_norm_mlp", "cnn_bn", "resnet_basic", "vit_fused", "gpt2", "weight_norm_mlp", "dueling"]
BESIDE_TRAINING += ["lstm_classifier"]
EVERY = [key for kind in ("one-shot", "per-step", "recycler", "optimizer") for key in keys_of(kind)]

pytestmark = pytest.mark.filterwarnings("ignore::rekindle.errors.NoEffectWarning")


def eager(key):
    return method(EAGER.get(key, key))


def member_of(name):
    if ZOO[name].requires:
        pytest.importorskip(ZOO[name].requires)
    return ZOO[name]


@pytest.mark.parametrize("key", EVERY)
def test_card_and_settings(key):
    check_card(method(key))
    check_settings(eager(key))


@pytest.mark.parametrize("member", ZOO)
@pytest.mark.parametrize("key", keys_of("one-shot"))
def test_one_shot_methods(key, member):
    check_on(method(key), member_of(member))


@pytest.mark.parametrize("member", ZOO)
@pytest.mark.parametrize("key", keys_of("recycler"))
def test_recyclers(key, member):
    check_on(eager(key), member_of(member))


@pytest.mark.parametrize("member", BESIDE_TRAINING)
@pytest.mark.parametrize("key", keys_of("per-step"))
def test_per_step_methods(key, member):
    check_on(eager(key), member_of(member))


@pytest.mark.parametrize("member", BESIDE_TRAINING)
@pytest.mark.parametrize("key", keys_of("optimizer"))
def test_optimizers(key, member):
    check_on(eager(key), member_of(member))
