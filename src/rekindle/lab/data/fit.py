"""Bring images of one data set to the shape of another: a second task for the same network."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import interpolate

from rekindle.errors import RekindleError


@dataclass(frozen=True)
class Fit:
    """Resize to `[channels, height, width]`; gray becomes color by repeating, color gray by the mean of its channels.

    Example:
        >>> import torch
        >>> Fit((3, 8, 8))(torch.ones(2, 1, 4, 4)).shape
        torch.Size([2, 3, 8, 8])
    """

    shape: tuple[int, ...]

    def __call__(self, images: Tensor) -> Tensor:
        """Return images of the shape."""
        if images.ndim != 4 or len(self.shape) != 3 or not self._channels_fit(images.shape[1]):
            raise RekindleError(
                expected=f"images that can be brought to the shape {self.shape}",
                got=f"inputs of shape {tuple(images.shape[1:])}",
                fix="take a second data set of images with one or as many channels",
            )
        if images.shape[1] != self.shape[0]:
            gray = images.mean(1, keepdim=True)
            images = gray.expand(-1, self.shape[0], -1, -1)
        if images.shape[2:] != self.shape[1:]:
            images = interpolate(images, list(self.shape[1:]), mode="bilinear", align_corners=False, antialias=True)
        return images

    def _channels_fit(self, channels: int) -> bool:
        return channels == self.shape[0] or 1 in (channels, self.shape[0])
