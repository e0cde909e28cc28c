"""Two processes with the real Trainer: what is done is the same on both, to the bit, and as strong as on one.

This file is also the script that each of the two runs.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from rekindle.errors import KeeperError  # noqa: E402
from rekindle.integrations.transformers import KeeperCallback  # noqa: E402
from tests.integrations.trainers import gpt2, tokens, trainer, weights  # noqa: E402

RUNS = {
    "one_shot": ("fire+shrink_perturb", {"at": [1], "every": 2}),
    "looks_at_data": ("dash", {"at": [2]}),
    "per_step": ("soft_rescale:strength=0.1+l2_init:strength=0.1", {}),
    "recyclers": ("redo:period=2,threshold=0.9+cbp:rate=0.2,maturity=1", {}),
}
PENALTY = "l2:strength=0.3+parseval:strength=0.05"


# --- what each process does ---


def trained(folder, methods, given, size, resume=None, **settings):
    model = gpt2(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    callback = KeeperCallback(methods, **given)
    usual = {"train_sampling_strategy": "sequential", "optim": "sgd", "learning_rate": 0.1}
    usual |= {"ddp_backend": "gloo"} if "RANK" in os.environ else {}
    run = trainer(folder, callback, model, tokens(32), per_device_train_batch_size=size, **{**usual, **settings})
    run.train(resume_from_checkpoint=resume)
    return {
        "weights": weights(model),
        "done": len(callback.records),
        "steps": callback._hosted._left["keeper"]["steps"],
    }


def refusal(folder):
    try:
        trained(folder, "plasticity_injection", {"at": [1]}, 2)
    except KeeperError as error:
        return str(error)
    return "none"


def work(folder, rank):
    found = {name: trained(folder, methods, given, 2) for name, (methods, given) in RUNS.items()}
    found["penalty"] = trained(folder, PENALTY, {}, 2, gradient_accumulation_steps=2, max_grad_norm=0.5)
    saving = {"save_strategy": "steps", "save_steps": 2}
    kept = ("cbp:rate=0.2,maturity=1", {}, 2)
    found["whole"] = trained(folder / "saved", *kept, **saving)
    found["resumed"] = trained(folder / "again", *kept, resume=str(folder / "saved" / "checkpoint-2"), **saving)
    found["refusal"] = refusal(folder)
    torch.save(found, folder / f"found{rank}.pt")


if __name__ == "__main__":
    work(Path(sys.argv[1]), int(os.environ["RANK"]))
    sys.exit()


# --- what is said about them ---


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    root = Path(__file__).resolve().parents[2]
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    known = os.environ | {"PYTHONPATH": f"{root / 'src'}:{root}", "OMP_NUM_THREADS": "1", "WORLD_SIZE": "2"}
    known |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    started = [
        subprocess.Popen(
            [sys.executable, __file__, str(folder)],
            env=known | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        told = [each.communicate(timeout=120)[0] for each in started]
    finally:
        for each in started:
            each.kill()
    assert all(each.returncode == 0 for each in started), "\n".join(told)
    return [torch.load(folder / f"found{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize("name", RUNS)
def test_both_are_equal_to_the_bit(both, name):
    first, second = (found[name]["weights"] for found in both)
    assert all(torch.equal(value, second[key]) for key, value in first.items())
    assert both[0][name]["done"] == both[1][name]["done"] > 0 or name == "per_step"


def test_the_penalty_is_as_strong_as_on_one_process(both, tmp_path):
    alone = trained(tmp_path, PENALTY, {}, 4, gradient_accumulation_steps=2, max_grad_norm=0.5)
    found = both[0]["penalty"]
    assert found["steps"] == alone["steps"] == 4
    torch.testing.assert_close(found["weights"], alone["weights"], rtol=1e-4, atol=1e-5)


def test_both_resume_from_one_file(both):
    for found in both:
        whole, resumed = found["whole"]["weights"], found["resumed"]["weights"]
        assert all(torch.equal(value, resumed[key]) for key, value in whole.items())


def test_methods_that_change_the_structure_are_refused(both):
    assert "plasticity_injection" in both[0]["refusal"] and both[0]["refusal"] == both[1]["refusal"]
