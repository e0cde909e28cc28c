"""A decoder-only language model in the shape of GPT-2."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rekindle.errors import SettingsError


class CausalAttention(nn.Module):
    """Causal self-attention with queries, keys and values from one linear layer."""

    def __init__(self, dim: int, heads: int, bias: bool, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.c_attn = nn.Linear(dim, 3 * dim, bias=bias)
        self.c_proj = nn.Linear(dim, dim, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Attend to the current and earlier tokens."""
        batch, tokens, dim = x.shape
        parts = self.c_attn(x).split(dim, dim=2)
        q, k, v = (part.view(batch, tokens, self.heads, -1).transpose(1, 2) for part in parts)
        dropout = self.dropout if self.training else 0.0
        x = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        x = x.transpose(1, 2).contiguous().view(batch, tokens, dim)
        return F.dropout(self.c_proj(x), self.dropout, self.training)


class FeedForward(nn.Module):
    """Expand, GELU, project back."""

    def __init__(self, dim: int, hidden: int, bias: bool, dropout: float) -> None:
        super().__init__()
        self.c_fc = nn.Linear(dim, hidden, bias=bias)
        self.c_proj = nn.Linear(hidden, dim, bias=bias)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """Transform each token alone."""
        return F.dropout(self.c_proj(F.gelu(self.c_fc(x))), self.dropout, self.training)


class GPTBlock(nn.Module):
    """Pre-norm attention and feed-forward, each added to the stream."""

    def __init__(self, dim: int, heads: int, hidden: int, bias: bool, dropout: float) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(dim, bias=bias)
        self.attn = CausalAttention(dim, heads, bias, dropout)
        self.ln_2 = nn.LayerNorm(dim, bias=bias)
        self.mlp = FeedForward(dim, hidden, bias, dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Update the stream twice."""
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """Token and position embeddings, pre-norm blocks, and a head that shares the token embedding's weight.

    Args:
        vocabulary: Number of tokens.
        context: Longest sequence.
        dim: Width of the residual stream.
        depth: Number of blocks.
        heads: Attention heads.
        hidden: Units of each block's feed-forward layer; four times `dim` when None.
        bias: Whether linear layers and LayerNorms have a bias.
        dropout: Dropout probability while training.

    Example:
        >>> import torch
        >>> GPT(vocabulary=65, context=16, dim=32, depth=2, heads=4)(torch.zeros(2, 16, dtype=torch.long)).shape
        torch.Size([2, 16, 65])
    """

    def __init__(
        self,
        vocabulary: int = 50304,
        context: int = 1024,
        dim: int = 768,
        depth: int = 12,
        heads: int = 12,
        hidden: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if dim % heads or not 0 <= dropout < 1:
            raise SettingsError(
                expected="a dim that is a multiple of heads, and a dropout from 0 to below 1",
                got=f"dim={dim}, heads={heads}, dropout={dropout}",
                fix="take dim=384, heads=6, for example",
            )
        self.dropout = dropout
        self.wte = nn.Embedding(vocabulary, dim)
        self.wpe = nn.Embedding(context, dim)
        self.h = nn.ModuleList(GPTBlock(dim, heads, hidden or 4 * dim, bias, dropout) for _ in range(depth))
        self.ln_f = nn.LayerNorm(dim, bias=bias)
        self.lm_head = nn.Linear(dim, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights from N(0, 0.02), smaller where 2 * depth branches add up on the stream; biases are zero."""
        for name, parameter in self.named_parameters():
            if name.endswith("c_proj.weight"):
                nn.init.normal_(parameter, std=0.02 / (2 * len(self.h)) ** 0.5)
            elif parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
            else:
                nn.init.ones_(parameter)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map token ids (batch, length) to logits (batch, length, vocabulary)."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.wte(tokens) + self.wpe(positions)
        x = F.dropout(x, self.dropout, self.training)
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))
