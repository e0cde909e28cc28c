"""A vision transformer (Dosovitskiy et al. 2020) with the three spellings of attention found in the wild."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SeparateAttention(nn.Module):
    """Self-attention with one linear layer each for queries, keys and values."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)
        self.v = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Attend over the tokens of each sequence."""
        q, k, v = (layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        x = F.scaled_dot_product_attention(q, k, v)  # (batch, heads, tokens, head_dim)
        return self.out(x.transpose(1, 2).flatten(2))


class FusedAttention(nn.Module):
    """Self-attention with one linear layer for queries, keys and values, and the softmax written out."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Attend over the tokens of each sequence."""
        batch, tokens, dim = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.heads, dim // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each (batch, heads, tokens, head_dim)
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        x = scores.softmax(-1) @ v
        return self.out(x.transpose(1, 2).reshape(batch, tokens, dim))


class MultiheadAttention(nn.Module):
    """Self-attention by `torch.nn.MultiheadAttention`."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.mha = nn.MultiheadAttention(dim, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Attend over the tokens of each sequence."""
        return self.mha(x, x, x, need_weights=False)[0]


ATTENTIONS: dict[str, type[nn.Module]] = {
    "separate": SeparateAttention,
    "fused": FusedAttention,
    "mha": MultiheadAttention,
}


class ViTBlock(nn.Module):
    """Pre-norm attention and MLP, each added to the stream."""

    def __init__(self, dim: int, heads: int, hidden: int, attention: str) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = ATTENTIONS[attention](dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))

    def forward(self, x: Tensor) -> Tensor:
        """Update the stream twice."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """Patch embedding, class token, learned positions, pre-norm blocks and a linear head on the class token.

    Args:
        classes: Number of outputs.
        in_channels: Channels of the image.
        image_size: Height and width of the image.
        patch_size: Height and width of a patch.
        dim: Width of the residual stream.
        depth: Number of blocks.
        heads: Attention heads.
        hidden: Units of each block's MLP; four times `dim` when None.
        attention: "separate", "fused" or "mha": the same function, spelled differently.

    Example:
        >>> import torch
        >>> ViT(dim=32, depth=2, heads=4)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        classes: int = 10,
        in_channels: int = 3,
        image_size: int = 32,
        patch_size: int = 4,
        dim: int = 192,
        depth: int = 12,
        heads: int = 3,
        hidden: int | None = None,
        attention: str = "separate",
    ) -> None:
        super().__init__()
        tokens = (image_size // patch_size) ** 2 + 1
        self.patches = nn.Conv2d(in_channels, dim, patch_size, patch_size)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.positions = nn.Parameter(torch.empty(1, tokens, dim))
        nn.init.trunc_normal_(self.positions, std=0.02)
        self.blocks = nn.ModuleList(ViTBlock(dim, heads, hidden or 4 * dim, attention) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images to logits."""
        x = self.patches(x).flatten(2).transpose(1, 2)  # (batch, tokens, dim)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def vit_tiny(
    classes: int = 10, in_channels: int = 3, image_size: int = 32, patch_size: int = 4, attention: str = "separate"
) -> ViT:
    """ViT-Tiny: 12 blocks of width 192 with 3 heads."""
    return ViT(classes, in_channels, image_size, patch_size, attention=attention)
