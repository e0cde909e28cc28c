"""The callback in transformers' Trainer: what it does when, and that it leaves the rest of a training alone."""

import logging
import subprocess
import sys

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import KeeperError, NoEffectWarning

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from rekindle.integrations.transformers import KeeperCallback, refuse_setting  # noqa: E402
from tests.integrations.trainers import (  # noqa: E402
    WithBatchNorm,
    build,
    gpt2,
    pixels,
    same,
    tokens,
    trainer,
    weights,
)

FAR = 10**6


def steps_of(callback):
    return [record.step for record in callback.records]


# --- models ---


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert_classification", "bert_mlm"])
def test_one_line_for_the_usual_models(name, tmp_path):
    model, data = build(name), tokens(classes=2) if name == "bert_classification" else tokens()
    callback = KeeperCallback("fire+soft_rescale:strength=1e-3+redo:period=2,threshold=0.9", at=[3])
    run = trainer(tmp_path, callback, model, data)
    run.train()
    keys = [getattr(record.method, "key", "redo") for record in callback.records]
    assert keys[0] == "redo" and "fire" in keys
    assert "fire" in keys and all(row.changed for row in callback.records[keys.index("fire")].rows)
    logged = {name: value for row in run.state.log_history for name, value in row.items() if "rekindle" in name}
    assert logged["rekindle/fire/sfe"] > 0 and logged["rekindle/redo/recycled"] > 0


def test_settings_and_several_methods_are_understood():
    callback = KeeperCallback([rk.SoftRescale(strength=1e-3), "fire"], every=2)
    assert [one.key for one in callback._hosted.methods] == ["soft_rescale", "fire"]


# --- it leaves the training alone ---


@pytest.mark.parametrize("methods", [(), "fire", "redo:period=1000000", "soft_rescale:strength=0"])
@pytest.mark.parametrize("name", ["gpt2", "bert_mlm"])
def test_an_idle_callback_changes_no_bit(methods, name, tmp_path):
    collator = {"data_collator": masked} if name == "bert_mlm" else {}
    plain, kept = build(name), build(name)
    trainer(tmp_path, None, plain, given=collator).train()
    at = [FAR] if methods == "fire" else None
    trainer(tmp_path, KeeperCallback(methods, at=at), kept, given=collator).train()
    same(weights(plain), weights(kept))


def masked(samples):
    """Collate with a part of the tokens hidden at random, by torch's global generator."""
    inputs = torch.stack([each["input_ids"] for each in samples])
    hidden = torch.rand(inputs.shape) < 0.3
    return {"input_ids": inputs.masked_fill(hidden, 0), "labels": inputs.masked_fill(~hidden, -100)}


def test_nothing_of_ours_stays_in_the_model(tmp_path):
    model = gpt2()
    callback = KeeperCallback("redo:period=2,threshold=0.9+l2_init")
    trainer(tmp_path, callback, model).train()
    assert callback.keeper is None and callback.records
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())


# --- when one-shot methods act ---


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"at": [2]}, 1),
        ({"at": [1, 3]}, 2),
        ({"every": 2}, 2),
        ({"at": "start"}, 1),
        ({}, 0),
        ({"at": 0, "every": 3}, 2),
    ],
)
def test_one_shot_methods_act_when_they_are_told_to(given, expected, tmp_path):
    callback = KeeperCallback("shrink_perturb", **given)
    run = trainer(tmp_path, callback)
    run.train()
    assert (
        len(callback.records) == expected == sum("rekindle/shrink_perturb/sfe" in row for row in run.state.log_history)
    )


def test_at_the_start_the_model_is_treated_before_its_first_step(tmp_path):
    model, alone = gpt2(), gpt2()
    trainer(tmp_path, KeeperCallback("full_reset", at="start", seed=5), model, max_steps=1, learning_rate=0.0).train()
    keeper = rk.Keeper(alone, None, "full_reset", example=tokens_batch(), seed=5)
    keeper.boundary()
    same(weights(model), weights(alone))


def tokens_batch():
    return {name: torch.stack([each[name] for each in tokens()[:2]]) for name in ("input_ids", "labels")}


def test_new_data_is_a_boundary_and_the_same_data_is_none(tmp_path):
    callback = KeeperCallback("shrink_perturb+soft_rescale")
    run = trainer(tmp_path, callback, max_steps=2)
    run.train()
    run.train()
    assert not callback.records
    run.train_dataset = tokens(seed=7)
    run.train()
    assert len(callback.records) == 1
    trainer(tmp_path, callback, run.model, tokens(seed=8), max_steps=2).train()  # another Trainer, with its optimizer
    assert len(callback.records) == 2 and callback._hosted._left["keeper"]["steps"] == 8


def test_new_data_is_no_boundary_where_steps_are_given(tmp_path):
    callback = KeeperCallback("shrink_perturb", at=[3])
    run = trainer(tmp_path, callback, max_steps=2)
    run.train()
    run.train_dataset = tokens(seed=7)
    run.train()
    assert len(callback.records) == 1, "steps go on over both trainings"


def test_another_model_begins_anew(tmp_path):
    callback = KeeperCallback("shrink_perturb", at=[1])
    trainer(tmp_path, callback, max_steps=2).train()
    trainer(tmp_path, callback, gpt2(seed=1), max_steps=2).train()
    assert len(callback.records) == 2


def test_methods_that_look_at_data_are_given_the_trainers_own(tmp_path):
    callback = KeeperCallback("dash", at=[1])
    trainer(tmp_path, callback, max_steps=2).train()
    assert callback.records[0].changed


def test_running_statistics_are_renewed_after_a_treatment(tmp_path):
    model = WithBatchNorm()
    callback = KeeperCallback("fire", at=[2])
    trainer(tmp_path, callback, model, pixels(), max_steps=2, learning_rate=0.0).train()
    treated, renewed = callback.records
    assert treated.method.key == "fire" and "recalibrate_" in str(renewed.method)
    with torch.no_grad():
        seen = model.body(torch.stack([each["pixels"] for each in pixels()]))
    torch.testing.assert_close(model.norm.running_mean, seen.mean(0), rtol=1e-4, atol=1e-4)


# --- other settings of the Trainer ---


@pytest.mark.parametrize("settings", [{"bf16": True}, {"torch_compile": True, "torch_compile_backend": "eager"}])
def test_other_precision_and_compiled_models(settings, tmp_path):
    callback = KeeperCallback("fire+soft_rescale+redo:period=2,threshold=0.9", at=[2])
    trainer(tmp_path, callback, **settings).train()
    named = [row.tensor for record in callback.records if hasattr(record, "rows") for row in record.rows]
    assert "transformer.h.0.attn.c_attn.weight" in named and len(callback.records) == 3


def test_the_best_model_is_loaded_at_the_end(tmp_path):
    best = {"eval_strategy": "steps", "save_strategy": "steps", "eval_steps": 2, "save_steps": 2}
    callback = KeeperCallback("shrink_perturb+l2_init:strength=0.01", at=[3])
    run = trainer(tmp_path, callback, given={"eval_dataset": tokens(8, seed=5)}, load_best_model_at_end=True, **best)
    run.train()
    assert run.state.best_model_checkpoint and len(callback.records) == 1
    run.train()
    assert callback._hosted._left["keeper"]["steps"] == 8


def test_the_learning_rate_drops_and_methods_take_a_new_start(tmp_path):
    def start_at_the_end(rebase):
        model = gpt2()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.1)
        callback = KeeperCallback("l2_init", rebase=rebase)
        first = weights(model)["transformer.wte.weight"]
        trainer(tmp_path, callback, model, given={"optimizers": (optimizer, schedule)}, max_steps=3).train()
        kept = callback._hosted._left["keeper"]["running"][0]["start"]["transformer.wte.weight"]
        return torch.equal(kept, first), torch.equal(kept, weights(model)["transformer.wte.weight"])

    assert start_at_the_end(False) == (True, False)
    assert start_at_the_end(True) == (False, True)


def test_a_line_in_the_log_tells_of_every_treatment(tmp_path, caplog):
    with caplog.at_level(logging.INFO, logger="rekindle"):
        trainer(tmp_path, KeeperCallback("shrink_perturb", at=[2]), max_steps=2).train()
    assert [record.message for record in caplog.records if record.message.startswith("step 2: shrink_perturb changed")]


def test_a_log_of_ours_does_not_take_the_place_of_the_trainers(tmp_path):
    run = trainer(tmp_path, KeeperCallback("shrink_perturb", at=[2]), max_steps=2, logging_steps=2)
    run.train()
    assert [row["step"] for row in run.state.log_history if "loss" in row] == [2]


# --- refusals ---


def test_a_stream_needs_an_example(tmp_path):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(tokens())

    with pytest.raises(KeeperError, match="example="):
        trainer(tmp_path, KeeperCallback("fire", at=[1]), data=Stream()).train()
    callback = KeeperCallback("fire", at=[1], example=tokens_batch())
    trainer(tmp_path, callback, data=Stream()).train()
    assert callback.records[0].changed


@pytest.mark.parametrize(("given", "why"), [({}, "new data"), ({"at": [5]}, r"ends at step 2.*at=\[5\]")])
def test_a_training_without_a_treatment_says_so_at_its_beginning(given, why, tmp_path):
    callback = KeeperCallback("shrink_perturb", **given)
    run = trainer(tmp_path, callback, max_steps=2)
    with pytest.warns(NoEffectWarning, match=f"shrink_perturb will not act in this training: .*{why}") as told:
        run.train()
        run.train()
    assert len([each for each in told if each.category is NoEffectWarning]) == 1


def test_a_method_that_looks_at_data_says_at_the_beginning_that_a_stream_will_not_do(tmp_path):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(tokens())

    run = trainer(tmp_path, KeeperCallback("dash", at=[2], example=tokens_batch()), data=Stream())
    with pytest.raises(KeeperError, match="dash, which looks at data"):
        run.train()
    assert run.state.global_step == 0


def test_the_state_of_an_optimizer_that_is_not_known(tmp_path):
    class Odd(torch.optim.SGD):
        def step(self, closure=None):
            for parameter in self.param_groups[0]["params"]:
                self.state[parameter].setdefault("odd", torch.ones_like(parameter))
            return super().step(closure)

    def run(**given):
        model = gpt2()
        optimizer = Odd(model.parameters(), 0.1)
        constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
        callback = KeeperCallback("shrink_perturb", at=[1], **given)
        trainer(tmp_path, callback, model, given={"optimizers": (optimizer, constant)}, max_steps=2).train()
        return callback

    with pytest.raises(rk.RekindleError, match="optimizer_state='drop'"):
        run()
    assert run(optimizer_state="drop").records[0].changed


def test_two_callbacks_are_refused(tmp_path):
    run = trainer(tmp_path, KeeperCallback("fire", at=[1]))
    run.add_callback(KeeperCallback("soft_rescale"))
    with pytest.raises(KeeperError, match="join the methods"):
        run.train()


@pytest.mark.parametrize("settings", [{"at": [1.5]}, {"at": -1}, {"at": []}, {"at": "end"}, {"every": 0}])
def test_what_is_no_step_is_refused(settings):
    with pytest.raises(KeeperError, match="steps"):
        KeeperCallback("fire", **settings)


def test_steps_without_a_method_that_acts_then_are_refused():
    with pytest.raises(KeeperError, match="one-shot"):
        KeeperCallback("soft_rescale", at=[3])


def test_deepspeed_and_copies_on_several_devices_are_refused(tmp_path):
    callback = KeeperCallback("redo")
    run = trainer(tmp_path, callback)
    run.is_deepspeed_enabled = True
    with pytest.raises(KeeperError, match="DeepSpeed"):
        refuse_setting(run, callback)
    run.is_deepspeed_enabled, run.args._n_gpu = False, 2
    with pytest.raises(KeeperError, match="DataParallel"):
        refuse_setting(run, callback)


def test_what_cannot_work_says_so_before_the_first_step(tmp_path):
    model = gpt2()
    before = weights(model)
    with pytest.raises(rk.RekindleError):
        trainer(tmp_path, KeeperCallback("fire", at=[3], copies={"nowhere": "transformer"}), model).train()
    same(before, weights(model))


# --- PEFT ---


def test_adapters_and_their_base_stay_as_they_are(tmp_path):
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(gpt2(), peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True))
    before, callback = weights(model), KeeperCallback("shrink_perturb", at=[1])
    with pytest.warns(NoEffectWarning, match="adapter"):
        trainer(tmp_path, callback, model, max_steps=1, learning_rate=0.0).train()
    same(before, weights(model))
    assert not callback.records[0].rows and any("adapter" in skip.reason for skip in callback.records[0].skips)


def test_what_is_trained_beside_adapters_is_treated(tmp_path):
    peft = pytest.importorskip("peft")
    settings = {"r": 2, "target_modules": ["query"], "task_type": "SEQ_CLS"}
    model = peft.get_peft_model(build("bert_classification"), peft.LoraConfig(**settings))
    callback = KeeperCallback("shrink_perturb+soft_rescale", at=[1])
    trainer(tmp_path, callback, model, tokens(classes=2), max_steps=2).train()
    edited = {row.tensor for row in callback.records[0].rows}
    assert edited and all("classifier.modules_to_save" in name for name in edited)


def test_a_module_is_no_trainer():
    with pytest.raises(KeeperError, match="Keeper"):
        KeeperCallback("fire").on_train_begin(None, None, None, model=nn.Linear(1, 1))


def test_a_missing_package_is_named_with_what_installs_it():
    code = "import sys; sys.modules['transformers'] = None; import rekindle.integrations.transformers"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode and "what to do: pip install 'rekindle[transformers]'" in done.stderr


def test_after_an_exception_the_model_can_be_left(tmp_path):
    model, callback = gpt2(), KeeperCallback("redo:period=2,threshold=0.9")
    run = trainer(tmp_path, callback, model)
    run.compute_loss = lambda *args, **kwargs: 1 / 0
    with pytest.raises(ZeroDivisionError):
        run.train()
    hooks = [module for module in model.modules() if module._forward_pre_hooks or module._forward_hooks]
    assert hooks and callback.keeper is not None
    callback.close()
    assert callback.keeper is None
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())
