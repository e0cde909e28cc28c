"""Small trainings with transformers' own Trainer, for the tests of its callback."""

from pathlib import Path

import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
)

VOCABULARY, LENGTH = 32, 8
GPT2 = {"n_layer": 1, "n_embd": 16, "n_head": 2, "n_positions": LENGTH, "bos_token_id": 0, "eos_token_id": 0}
OTHERS = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
SHAPE = {"vocab_size": VOCABULARY, "max_position_embeddings": LENGTH}


def gpt2(seed=0, **settings):
    torch.manual_seed(seed)
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, **GPT2, **settings))


def build(name, seed=0):
    """Return one of the networks of transformers, tiny, with dropout where it has some."""
    torch.manual_seed(seed)
    if name == "gpt2":
        return gpt2(seed)
    if name == "llama":
        return LlamaForCausalLM(LlamaConfig(**SHAPE, **OTHERS))
    kind = {"bert_classification": BertForSequenceClassification, "bert_mlm": BertForMaskedLM}[name]
    return kind(BertConfig(**SHAPE, **OTHERS))


def tokens(count=24, seed=1, *, classes=0):
    """Return a dataset of sequences, with themselves or a class for labels."""
    draw = torch.Generator().manual_seed(seed)
    every = torch.randint(0, VOCABULARY, (count, LENGTH), generator=draw)
    if classes:
        return [{"input_ids": one, "labels": one[0] % classes} for one in every]
    return [{"input_ids": one, "labels": one} for one in every]


def arguments(folder, **settings):
    """Return arguments of a training on the CPU that logs and saves little."""
    quiet = {"report_to": [], "disable_tqdm": True, "use_cpu": True, "save_strategy": "no", "logging_steps": 100}
    usual = {"max_steps": 4, "per_device_train_batch_size": 4, "learning_rate": 1e-2, "seed": 3}
    return TrainingArguments(str(folder), **{**quiet, **usual, **settings})


def trainer(folder, callback=None, model=None, data=None, given=None, **settings):
    """Return a Trainer with a callback, or without one; `given` goes to the Trainer, settings to its arguments."""
    model = gpt2() if model is None else model
    callbacks = [] if callback is None else [callback]
    data = tokens() if data is None else data
    return Trainer(model, arguments(Path(folder), **settings), train_dataset=data, callbacks=callbacks, **(given or {}))


def weights(model):
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def same(first, second):
    """Assert that two state dicts are equal to the bit."""
    assert first.keys() == second.keys()
    other = [name for name, value in first.items() if not torch.equal(value, second[name])]
    assert not other, f"{len(other)} of {len(first)} differ, as {other[0]}"


class WithBatchNorm(nn.Module):
    """A network that is none of transformers', as the Trainer takes them too."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.norm, self.head = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, pixels, labels=None):
        logits = self.head(self.norm(self.body(pixels)).relu())
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}


def pixels(count=32, seed=1):
    draw = torch.Generator().manual_seed(seed)
    every = torch.randn(count, 6, generator=draw)
    return [{"pixels": one, "labels": torch.tensor(number % 3)} for number, one in enumerate(every)]
