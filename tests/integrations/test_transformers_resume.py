"""A training that is resumed from a checkpoint ends where the one without a break does, to the bit, or says why not."""

import shutil

import pytest
import torch

from rekindle.errors import KeeperError, KeeperWarning

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from rekindle.integrations.state_file import NAME  # noqa: E402
from rekindle.integrations.transformers import KeeperCallback  # noqa: E402
from tests.integrations.trainers import build, gpt2, same, trainer, weights  # noqa: E402

SAVING = {"save_strategy": "steps", "save_steps": 3, "max_steps": 6, "gradient_accumulation_steps": 2}


def run(folder, callback, resume=None, **settings):
    model = gpt2(resid_pdrop=0.2)
    host = trainer(folder, callback, model, **{**SAVING, **settings})
    host.train(resume_from_checkpoint=resume)
    return weights(model), host


@pytest.mark.parametrize(
    ("methods", "given"),
    [
        ("shrink_perturb", {"at": [2, 5]}),
        ("fire", {"every": 3}),
        ("soft_rescale:strength=0.1", {}),
        ("l2_init:strength=0.1", {"rebase": True}),
        ("parseval:strength=0.01", {}),
        ("redo:period=2,threshold=0.9", {}),
        ("cbp:rate=0.2,maturity=1", {}),
        ("shrink_perturb+l2_init:strength=0.1+redo:period=2,threshold=0.9", {"at": "start", "every": 3}),
    ],
)
def test_a_resumed_training_is_equal_to_the_bit(methods, given, tmp_path):
    whole, host = run(tmp_path, KeeperCallback(methods, **given))
    assert (tmp_path / "checkpoint-3" / NAME).is_file()
    callback = KeeperCallback(methods, **given)
    resumed, again = run(tmp_path / "elsewhere", callback, resume=str(tmp_path / "checkpoint-3"))
    same(whole, resumed)
    assert again.state.global_step == host.state.global_step == 6
    assert not any(getattr(record, "step", 9) <= 3 for record in callback.records), "what was done is not done again"


def test_the_callback_matters_to_what_is_compared(tmp_path):
    """The runs above would differ if the callback did nothing, or nothing of what it had seen were saved."""
    plain, _ = run(tmp_path / "plain", None)
    kept, _ = run(tmp_path / "kept", KeeperCallback("l2_init:strength=0.1"))
    saved = torch.load(tmp_path / "kept" / "checkpoint-3" / NAME, weights_only=True)
    start = saved["keeper"]["running"][0]["start"]["transformer.wte.weight"]
    assert not torch.equal(plain["transformer.wte.weight"], kept["transformer.wte.weight"])
    assert torch.equal(start, weights(gpt2(resid_pdrop=0.2))["transformer.wte.weight"])


def test_resuming_in_the_folder_itself_and_by_true(tmp_path):
    whole, _ = run(tmp_path, KeeperCallback("soft_rescale:strength=0.1"))
    shutil.rmtree(tmp_path / "checkpoint-6")
    resumed, _ = run(tmp_path, KeeperCallback("soft_rescale:strength=0.1"), resume=True)
    same(whole, resumed)


def test_resuming_is_no_boundary(tmp_path):
    run(tmp_path, KeeperCallback("shrink_perturb"))
    callback = KeeperCallback("shrink_perturb")
    run(tmp_path, callback, resume=str(tmp_path / "checkpoint-3"))
    assert not callback.records


@pytest.mark.parametrize("settings", [{}, {"save_only_model": True}])
def test_a_checkpoint_without_our_file_is_refused(settings, tmp_path):
    run(tmp_path, None if not settings else KeeperCallback("soft_rescale"), **settings)
    with pytest.raises(KeeperError, match='(?s)rekindle.pt.*what to do: resume from.*at="start"'):
        run(tmp_path, KeeperCallback("soft_rescale"), resume=str(tmp_path / "checkpoint-3"))


@pytest.mark.parametrize(
    ("methods", "given"),
    [("l2_init", {}), ("soft_rescale:strength=0.5", {}), ("soft_rescale", {"seed": 4}), ("soft_rescale+fire", {})],
)
def test_a_checkpoint_of_other_methods_is_refused(methods, given, tmp_path):
    run(tmp_path, KeeperCallback("soft_rescale"))
    with pytest.raises(KeeperError, match="(?s)SoftRescale.*what to do: resume with the methods"):
        run(tmp_path, KeeperCallback(methods, **given), resume=str(tmp_path / "checkpoint-3"))


def test_a_structure_that_a_method_has_changed_is_not_resumed_in_silence(tmp_path):
    def injected(folder, resume=None):
        host = trainer(folder, KeeperCallback("plasticity_injection", at=[2]), build("llama"), **SAVING)
        host.train(resume_from_checkpoint=resume)

    injected(tmp_path)
    with pytest.raises(KeeperError, match="(?s)lm_head.*applied to the model again"):
        injected(tmp_path / "again", str(tmp_path / "checkpoint-3"))


def test_a_step_that_is_past_is_refused_and_one_to_come_is_not(tmp_path):
    run(tmp_path, KeeperCallback("shrink_perturb", at=[2]))
    later = KeeperCallback("shrink_perturb", at=[2, 5])
    run(tmp_path / "later", later, resume=str(tmp_path / "checkpoint-3"))
    assert len(later.records) == 1
    with pytest.raises(KeeperError, match=r"\[1\], and 3 steps are made"):
        run(tmp_path, KeeperCallback("shrink_perturb", at=[1]), resume=str(tmp_path / "checkpoint-3"))


def test_a_file_of_another_checkpoint_is_refused(tmp_path):
    run(tmp_path, KeeperCallback("soft_rescale"))
    shutil.copy(tmp_path / "checkpoint-6" / NAME, tmp_path / "checkpoint-3" / NAME)
    with pytest.raises(KeeperError, match="of step 6"):
        run(tmp_path, KeeperCallback("soft_rescale"), resume=str(tmp_path / "checkpoint-3"))


def test_a_treated_base_under_adapters_is_not_in_a_checkpoint(tmp_path):
    peft = pytest.importorskip("peft")

    def adapted():
        return peft.get_peft_model(gpt2(), peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True))

    with pytest.warns(KeeperWarning, match="saves the adapters alone"):
        trainer(tmp_path, KeeperCallback("fire", at="start", frozen=True), adapted(), **SAVING).train()
    again = trainer(tmp_path, KeeperCallback("fire", at="start", frozen=True), adapted(), **SAVING)
    with pytest.raises(KeeperError, match="adapters alone"):
        again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
