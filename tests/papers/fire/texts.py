"""Two small texts in the cache, in the format of `rekindle data prepare`, and studies that take seconds on them."""

import json
from dataclasses import replace

import numpy as np

from rekindle.methods import change

SMALL = {"data": "wikitext_bytes:context=8,windows=8,tokens=300", "model": "gpt:dim=16,depth=1,heads=2,bias=false"}


def write_texts(folder, monkeypatch):
    """Write bytes of two languages that have two letters each in common."""
    monkeypatch.setenv("REKINDLE_DATA", str(folder))
    for name, letters in (("wikitext_bytes", (97, 98, 99)), ("gutenberg_bytes", (98, 99, 100))):
        sizes = {"train": 600, "val": 200}
        (folder / name).mkdir(parents=True)
        for part, size in sizes.items():
            tokens = np.random.default_rng(size).choice(letters, size)
            tokens.astype(np.uint16).tofile(folder / name / f"{part}.bin")
        meta = {"tokenizer": "bytes", "vocabulary": 256, "dtype": "uint16", "end_of_text": None, "tokens": sizes}
        (folder / name / "meta.json").write_text(json.dumps({**meta, "sources": []}))


def shortened(experiment, second_steps=10):
    """Return an experiment with its cells on a tiny network, in a few steps."""
    short = {"steps": 20, "warmup": 2, "early": 10, "evaluate": 10, "second_steps": second_steps, "to_tokens": 500}

    def small(cell):
        protocol = change(str(cell.fields["protocol"]), **short)
        return replace(cell, fields={**cell.fields, **SMALL, "protocol": protocol})

    study = replace(experiment.cpu_study, cells=tuple(small(cell) for cell in experiment.cpu_study.cells))
    return replace(experiment, cpu_study=study)


def seen(losses, condition, measure, seeds=7, **more):
    """Return made-up observations: a loss for each method, with the same small differences between seeds for all."""
    return [
        {"condition": condition, "method": method, "seed": seed, measure: loss + 0.001 * seed, **more}
        for method, loss in losses.items()
        for seed in range(seeds)
    ]
