"""How layers start: torch's own initializers, Glorot's and He's. Methods that draw a layer afresh follow them."""

from typing import Literal, TypeVar

from torch import nn

Init = Literal["torch", "glorot", "he"]
Layer = nn.Linear | nn.Conv2d
Model = TypeVar("Model", bound=nn.Module)


class GlorotLinear(nn.Linear):
    """A linear layer that starts as in Keras: Glorot uniform, biases zero."""

    def reset_parameters(self) -> None:
        """Draw the weight and clear the bias."""
        _glorot_(self)


class HeLinear(nn.Linear):
    """A linear layer that starts with He normal weights and biases zero."""

    def reset_parameters(self) -> None:
        """Draw the weight and clear the bias."""
        _he_(self)


class GlorotConv2d(nn.Conv2d):
    """A convolution that starts as in Keras: Glorot uniform, biases zero."""

    def reset_parameters(self) -> None:
        """Draw the weight and clear the bias."""
        _glorot_(self)


class HeConv2d(nn.Conv2d):
    """A convolution that starts with He normal weights and biases zero."""

    def reset_parameters(self) -> None:
        """Draw the weight and clear the bias."""
        _he_(self)


def _glorot_(layer: Layer) -> None:
    nn.init.xavier_uniform_(layer.weight)
    _clear_bias_(layer)


def _he_(layer: Layer) -> None:
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    _clear_bias_(layer)


def _clear_bias_(layer: Layer) -> None:
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


LINEAR: dict[Init, type[nn.Linear]] = {"torch": nn.Linear, "glorot": GlorotLinear, "he": HeLinear}
CONVOLUTION: dict[Init, type[nn.Conv2d]] = {"torch": nn.Conv2d, "glorot": GlorotConv2d, "he": HeConv2d}


def drawn(model: Model, init: Init) -> Model:
    """Draw all linear layers and convolutions of a new model by another initializer, which they keep; return the model.

    Their class is exchanged, as torch does for parametrizations, so that any network can have it.

    Example:
        >>> type(drawn(nn.Sequential(nn.Linear(2, 2)), "he")[0]).__name__
        'HeLinear'
    """
    for layer in model.modules() if init != "torch" else ():
        for plain, initializers in ((nn.Linear, LINEAR), (nn.Conv2d, CONVOLUTION)):
            if type(layer) is plain:
                layer.__class__ = initializers[init]
                layer.reset_parameters()
    return model
