"""Continue pretraining from a checkpoint directory: audit it, compare three ways to go on, and go on the best way.

    python examples/continue_pretraining.py CHECKPOINT TEXT --out continued

CHECKPOINT is what `save_pretrained` wrote, of any causal language model, with its tokenizer. The last tenth of TEXT is
held out. The comparison trains `--seeds` short copies of each way; the model that goes on is not touched by it.
"""

import argparse
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

import rekindle as rk
from rekindle.integrations.transformers import KeeperCallback

parser = argparse.ArgumentParser()
parser.add_argument("checkpoint", type=Path)
parser.add_argument("text", type=Path)
parser.add_argument("--out", type=Path, default=Path("continued"))
parser.add_argument("--context", type=int, default=256)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--trial-steps", type=int, default=100, help="of each copy in the comparison")
parser.add_argument("--seeds", type=int, default=3)
parser.add_argument("--steps", type=int, default=1000, help="of the training that goes on")
parser.add_argument("--rate", type=float, default=3e-4)
asked = parser.parse_args()

model = AutoModelForCausalLM.from_pretrained(asked.checkpoint)
tokenizer = AutoTokenizer.from_pretrained(asked.checkpoint)
ids = torch.tensor(tokenizer(asked.text.read_text())["input_ids"])
windows = ids[: len(ids) // asked.context * asked.context].view(-1, asked.context)
learned, held = windows.tensor_split([len(windows) - max(len(windows) // 10, asked.batch)])  # a batch at least


def batches(rows: torch.Tensor) -> list[dict[str, torch.Tensor]]:
    """Return batches as the model takes them."""
    return [{"input_ids": part, "labels": part} for part in rows.split(asked.batch) if len(part) == asked.batch]


print(rk.audit(model, batches(learned)[:8]))

ways = ["fire:preset=gpt", "shrink_perturb:shrink=0.8"]  # going on and a fresh start take part anyway
optimizer = f"adamw:lr={asked.rate},weight_decay=0.1"
options = {"optimizer": optimizer, "budget": asked.trial_steps, "seeds": asked.seeds}
found = rk.compare(model, batches(learned), batches(held)[:16], ways, **options)
print(found)

clear = [one for one in found.outcomes if one.method != "fresh" and one.to_none is not None and one.to_none.better]
best = max(clear, key=lambda one: one.score.mean).method if clear else None  # untreated, unless one clearly helps
callbacks = [KeeperCallback(best, at="start")] if best else []
arguments = TrainingArguments(
    output_dir=asked.out, max_steps=asked.steps, learning_rate=asked.rate, per_device_train_batch_size=asked.batch
)
samples = [{"input_ids": row, "labels": row} for row in learned]
trainer = Trainer(model, arguments, train_dataset=samples, callbacks=callbacks)
trainer.train()
print(*(record for callback in callbacks for record in callback.records))
trainer.save_model(asked.out / "last")
