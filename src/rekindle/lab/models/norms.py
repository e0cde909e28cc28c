"""What normalizes a network: its own BatchNorm, or layer normalization in its place."""

from typing import Literal, TypeVar

from torch import nn

Norm = Literal["batch", "layer"]
NormOrNone = Literal["none", "batch", "layer"]
Model = TypeVar("Model", bound=nn.Module)


def normed(model: Model, norm: NormOrNone) -> Model:
    """Put layer normalization where a new model has BatchNorm, if that is asked for; return the model.

    It is over channels and places at once: GroupNorm with one group.

    Example:
        >>> layer = normed(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)), "layer")[1]
        >>> type(layer).__name__, layer.num_groups, layer.num_channels
        ('GroupNorm', 1, 8)
    """
    found = {path: module.num_features for path, module in model.named_modules() if isinstance(module, nn.BatchNorm2d)}
    for path, channels in found.items() if norm == "layer" else ():
        model.set_submodule(path, nn.GroupNorm(1, channels))
    return model
