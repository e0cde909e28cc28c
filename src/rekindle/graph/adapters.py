"""Adapters that PEFT puts beside the layers of a model: whose tensors they are.

What an adapter adds to its layer is computed from several tensors together - B A in LoRA, B zero at the start - and
the rank between them is no layer of units. Neither half means anything on its own: a factor or a fresh draw for one of
them changes their product in a way that no method intends. So they are told here, for whoever treats a model to leave
alone.
"""

from __future__ import annotations

from torch import nn

from rekindle.graph.names import canonical

LAYER = "BaseTunerLayer"  # PEFT's own class of all layers with adapters; by name, since PEFT need not be installed
ADAPTER = (
    "a part of an adapter (PEFT), which acts as a product with its other parts; merge it (merge_and_unload) to treat "
    "what it learned"
)
MODEL, PROMPTS = "PeftModel", "prompt_encoder"  # PEFT's class of whole models, and where it keeps prompts
PROMPT = "a prompt that an adapter (PEFT) learns, which stands for tokens and is no weight of a layer"
BASE = "base_layer"  # where such a layer keeps the one that it stands for


def adapters_in(model: nn.Module) -> dict[str, str]:
    """Return the parameters that belong to an adapter, with the reason for which nothing is done to them.

    Modules that PEFT trains as a whole (`modules_to_save`) are no adapters.
    """
    found: dict[str, str] = {}
    for path, module in model.named_modules():
        kinds = {cls.__name__ for cls in type(module).__mro__}
        if LAYER in kinds:
            found |= dict.fromkeys((canonical(f"{path}.{name}") for name in _own(module)), ADAPTER)
        elif MODEL in kinds:
            found |= dict.fromkeys((canonical(f"{path}.{name}".lstrip(".")) for name in _prompts(module)), PROMPT)
    return found


def _own(layer: nn.Module) -> list[str]:
    return [name for name, _ in layer.named_parameters() if name.partition(".")[0] != BASE]


def _prompts(model: nn.Module) -> list[str]:
    return [name for name, _ in model.named_parameters() if name.partition(".")[0] == PROMPTS]
