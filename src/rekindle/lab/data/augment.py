"""Augmentations of whole batches on tensors: images `[n, c, h, w]` in 0..1, each drawn on its own from one generator.

Everything that the experiments use: flips, crops and shifts (Frozen weights 6.5; layerwise reinitialization 2), blur by
down- and upscaling, rotation, shear, scale, contrast, brightness, saturation and hue (Frozen weights, Tables 6 to 8).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from rekindle.methods.frozen_settings import settings
from rekindle.methods.spec import choose, fill, links

Probability = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Step = Callable[[Tensor, torch.Generator], Tensor]


@settings
class Flip:
    """Mirror left and right, and top and bottom, each image with its own coin."""

    horizontal: Probability = 0.5
    vertical: Probability = 0.0

    def __call__(self, images: Tensor, random: torch.Generator) -> Tensor:
        """Return the images, some mirrored."""
        for probability, axis in ((self.horizontal, -1), (self.vertical, -2)):
            if probability:
                turned = (torch.rand(len(images), generator=random) < probability).to(images.device)
                images = torch.where(turned.view(-1, 1, 1, 1), images.flip(axis), images)
        return images


@settings
class Crop:
    """Add a black border, then cut a window of the old size at a random place."""

    padding: Annotated[int, Field(ge=0)] = 4

    def __call__(self, images: Tensor, random: torch.Generator) -> Tensor:
        """Return the cut images."""
        reach = (2 * self.padding + 1,) * 2
        return _window(F.pad(images, (self.padding,) * 4), *_places(len(images), reach, random), images.shape[-2:])


@settings
class Shift:
    """Move each image by up to a fraction of its side in both directions; what moves in is black."""

    size: Probability = 0.5

    def __call__(self, images: Tensor, random: torch.Generator) -> Tensor:
        """Return the moved images."""
        down, right = (int(self.size * side) for side in images.shape[-2:])
        reach = (2 * down + 1, 2 * right + 1)
        padded = F.pad(images, (right, right, down, down))
        return _window(padded, *_places(len(images), reach, random), images.shape[-2:])


@settings
class EnlargeCrop:
    """Scale all images up, then cut a window of the old size at a random place (224 to 248 in L)."""

    ratio: Annotated[float, Field(ge=1)] = 248 / 224

    def __call__(self, images: Tensor, random: torch.Generator) -> Tensor:
        """Return the cut images."""
        size = tuple(images.shape[-2:])
        larger = [round(side * self.ratio) for side in size]
        scaled = F.interpolate(images, larger, mode="bilinear", align_corners=False)
        reach = (larger[0] - size[0] + 1, larger[1] - size[1] + 1)
        return _window(scaled, *_places(len(images), reach, random), images.shape[-2:])


@settings
class Blur:
    """Scale down by `factor` and up again: always the same, no draw."""

    factor: Positive = 4.0

    def __call__(self, images: Tensor, random: torch.Generator | None = None) -> Tensor:
        """Return the blurred images."""
        return _blurred(images, 1 / self.factor)


@settings
class RandomBlur:
    """Scale each image down to a random part of its size, at least `smallest`, and up again."""

    smallest: Annotated[float, Field(gt=0, le=1)] = 0.3
    levels: Annotated[int, Field(ge=2)] = 8

    def __call__(self, images: Tensor, random: torch.Generator) -> Tensor:
        """Return the blurred images."""
        level = torch.randint(self.levels, (len(images),), generator=random)
        made = images.clone()
        for number in level.unique().tolist():  # few levels: one batch each
            part = self.smallest + (1 - self.smallest) * number / (self.levels - 1)
            which = (level == number).to(images.device)
            made[which] = _blurred(images[which], part)
        return made


@settings
class Affine:
    """Rotate, shear (degrees), scale and move (parts of the side) each image by its own draw; outside is black."""

    rotate: NotNegative = 0.0
    shear: Annotated[float, Field(ge=0, lt=90)] = 0.0
    scale: Annotated[float, Field(ge=0, lt=1)] = 0.0
    shift: NotNegative = 0.0

    def __call__(self, images: Tensor, random: torch.Generator) -> Tensor:
        """Return the transformed images."""
        draws = 2 * torch.rand(5, len(images), generator=random) - 1  # [5, n] in -1..1
        angle, slant = math.radians(self.rotate) * draws[0], torch.tan(math.radians(self.shear) * draws[1])
        zoom = 1 / (1 + self.scale * draws[2])
        cosine, sine = torch.cos(angle) * zoom, torch.sin(angle) * zoom
        across, down = 2 * self.shift * draws[3], 2 * self.shift * draws[4]  # the image spans -1..1
        matrix = torch.stack(
            [
                torch.stack([cosine, slant * cosine - sine, across], dim=1),
                torch.stack([sine, slant * sine + cosine, down], dim=1),
            ],
            dim=1,
        )  # [n, 2, 3], from the place in the new image to that in the old
        grid = F.affine_grid(matrix.to(images), list(images.shape), align_corners=False)
        return F.grid_sample(images, grid, align_corners=False)


@settings
class Rotate:
    """Rotate each image by up to `degrees` to either side."""

    degrees: NotNegative = 10.0

    def __call__(self, images: Tensor, random: torch.Generator) -> Tensor:
        """Return the rotated images."""
        return Affine(rotate=self.degrees)(images, random)


@settings
class Color:
    """Change contrast, brightness, saturation and hue of each image by its own draw, up to the given part."""

    contrast: NotNegative = 0.0
    brightness: NotNegative = 0.0
    saturation: NotNegative = 0.0
    hue: Annotated[float, Field(ge=0, le=0.5)] = 0.0

    def __call__(self, images: Tensor, random: torch.Generator) -> Tensor:
        """Return the recolored images, cut off at 0 and 1."""
        draws = (2 * torch.rand(4, len(images), 1, 1, 1, generator=random) - 1).to(images)
        images = images * (1 + self.brightness * draws[0])
        mean = images.mean((1, 2, 3), keepdim=True)
        images = mean + (images - mean) * (1 + self.contrast * draws[1])
        if images.shape[1] == 3:
            gray = images.mean(1, keepdim=True)
            images = gray + (images - gray) * (1 + self.saturation * draws[2])
            images = _turned_hue(images, 2 * math.pi * self.hue * draws[3]) if self.hue else images
        return images.clamp(0, 1)


AUGMENTATIONS: dict[str, type[Any]] = {
    "flip": Flip,
    "crop": Crop,
    "shift": Shift,
    "enlarge_crop": EnlargeCrop,
    "blur": Blur,
    "random_blur": RandomBlur,
    "affine": Affine,
    "rotate": Rotate,
    "color": Color,
}


@dataclass(frozen=True)
class Augment:
    """Several augmentations, one after the other."""

    steps: tuple[Step, ...]

    def __call__(self, images: Tensor, random: torch.Generator) -> Tensor:
        """Return the augmented images; the given ones are not changed."""
        for step in self.steps:
            images = step(images, random)
        return images


def augmentation(spec: str) -> Augment | None:
    """Return the augmentations of a spec string, joined by `+`; None for "none".

    Example:
        >>> augment = augmentation("flip+crop:padding=2")
        >>> augment(torch.rand(4, 3, 8, 8), torch.Generator()).shape
        torch.Size([4, 3, 8, 8])
    """
    if spec.strip() == "none":
        return None
    parts = [fill(AUGMENTATIONS[choose("augmentations", part, AUGMENTATIONS)], part) for part in links(spec)]
    return Augment(tuple(parts))


def _places(count: int, reach: tuple[int, int], random: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randint(reach[0], (count,), generator=random), torch.randint(reach[1], (count,), generator=random)


def _window(images: Tensor, top: Tensor, left: Tensor, size: torch.Size) -> Tensor:
    rows = top[:, None] + torch.arange(size[0])  # [n, h]
    columns = left[:, None] + torch.arange(size[1])  # [n, w]
    which = torch.arange(len(images))
    pixels = images.permute(0, 2, 3, 1)[which[:, None, None], rows[:, :, None], columns[:, None, :]]  # [n, h, w, c]
    return pixels.permute(0, 3, 1, 2)


def _blurred(images: Tensor, part: float) -> Tensor:
    size = list(images.shape[-2:])
    smaller = [max(1, round(side * part)) for side in size]
    down = F.interpolate(images, smaller, mode="bilinear", align_corners=False, antialias=True)
    return F.interpolate(down, size, mode="bilinear", align_corners=False)


def _turned_hue(images: Tensor, angle: Tensor) -> Tensor:
    """Turn the colors around the gray axis: hue without a detour through another color space."""
    cosine, sine = torch.cos(angle), torch.sin(angle)
    gray = images.mean(1, keepdim=True)
    red, green, blue = images.unbind(1)
    across = torch.stack([blue - green, red - blue, green - red], dim=1) / math.sqrt(3)
    return gray + (images - gray) * cosine + across * sine
