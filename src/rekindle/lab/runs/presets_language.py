"""FIRE's continued pretraining of a language model as runs: 4.2, E.2, Tables 3 and 10, and the code published with it.

E.2 takes nanoGPT's implementation and settings. What it does not say is as in github.com/isaac7778/FIRE: no biases, one
window in 91 from WikiText-103 in the second phase, two passes over both texts in it. Where the two differ this is the
paper: the learning rate falls linearly (code: a cosine), and rises over a tenth of the second phase (code: over at most
2,000 steps). The code has float16, this bfloat16.
"""

from __future__ import annotations

from typing import Any

Fields = dict[str, Any]

LANGUAGE: Fields = {
    "data": "wikitext103:context=1024",
    "model": "gpt:dim=768,depth=12,heads=12,bias=false,multiple=64",
    "optimizer": "adamw:lr=6e-4,betas=0.9|0.95,weight_decay=0.1,decay=matrices",
    "batch_size": 480,
    "accumulate": 40,
    "clip": 1.0,
    "precision": "bfloat16",
    "compile": True,
}
# The second phase: 2 * (9.04 + 0.12) billion tokens in steps of 480 * 1024, evaluated twenty times.
LANGUAGE_PROTOCOL = (
    "lm_continual:to=openwebtext,share=0.011,steps=60000,warmup=2000,evaluate=2000,early=30000,"
    "second_steps=37000,second_evaluate=1850"
)
# Checkpoint as in Table 10 -> where the second phase starts, and the best strength of S&P.
_CHECKPOINTS = {"best": ("best", 0.5), "30k": ("early", 0.8), "60k": ("late", 0.5)}
LANGUAGE_RUNS: dict[str, Fields] = {
    f"fire.language.{name}": {**LANGUAGE, "protocol": f"{LANGUAGE_PROTOCOL},start={start}"}
    for name, (start, _) in _CHECKPOINTS.items()
}
LANGUAGE_BEST: dict[str, dict[str, str]] = {
    f"fire.language.{name}": {"fire": "fire:preset=gpt", "shrink_perturb": f"shrink_perturb:shrink={strength}"}
    for name, (_, strength) in _CHECKPOINTS.items()
}
