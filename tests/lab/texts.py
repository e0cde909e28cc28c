"""Small texts in the cache, as `rekindle data prepare` writes them, and a run on them that takes a second."""

import numpy as np

from rekindle.lab.data.bins import Meta
from rekindle.lab.data.store import VARIABLE
from rekindle.lab.runs.spec import Run

PROTOCOL = "lm_continual:to=other,share=0.25,steps=30,second_steps=20,evaluate=10,warmup=4,early=20"
SMALL = {
    "protocol": PROTOCOL,
    "data": "first:context=8,windows=16",
    "model": "gpt:dim=16,depth=1,heads=2,bias=false",
    "optimizer": "adamw:lr=1e-2,betas=0.9|0.95,weight_decay=0.1,decay=matrices",
    "batch_size": 8,
    "clip": 1.0,
}


def write_texts(folder, monkeypatch, vocabulary=16):
    """Write two texts: one that repeats itself with a period, another with another."""
    monkeypatch.setenv(VARIABLE, str(folder))
    for name, period in (("first", 5), ("other", 7)):
        random = np.random.default_rng(period)
        pattern = random.integers(0, vocabulary, period)
        (folder / name).mkdir(parents=True)
        counts = {"train": 400, "val": 200}
        for part, count in counts.items():
            text = np.tile(pattern, count // period + 1)[:count]
            noisy = np.where(random.random(count) < 0.2, random.integers(0, vocabulary, count), text)
            noisy.astype(np.uint16).tofile(folder / name / f"{part}.bin")
        (folder / name / "meta.json").write_text(Meta("bytes", vocabulary, "uint16", None, counts, []).to_json())


def text_run(**given):
    """Return the small run, its protocol with other settings if `start` and others are given."""
    fields = {name: given.pop(name) for name in [*given] if name in Run.__dataclass_fields__}
    extra = "".join(f",{name}={value}" for name, value in given.items())
    return Run.from_dict({**SMALL, "protocol": PROTOCOL + extra, **fields})
