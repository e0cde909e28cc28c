"""Zoo networks that mix tokens, and the two from `transformers`."""

import torch.nn.functional as F
from torch import Tensor, nn


class MixerBlock(nn.Module):
    """Mix along tokens on the transposed stream, then along channels."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(10)
        self.token_fc1 = nn.Linear(9, 7)
        self.token_fc2 = nn.Linear(7, 9)
        self.norm2 = nn.LayerNorm(10)
        self.channel_fc1 = nn.Linear(10, 13)
        self.channel_fc2 = nn.Linear(13, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Update the stream (batch, tokens, channels) twice."""
        mixed = self.token_fc2(F.gelu(self.token_fc1(self.norm1(x).transpose(1, 2))))
        x = x + mixed.transpose(1, 2)
        return x + self.channel_fc2(F.gelu(self.channel_fc1(self.norm2(x))))


class Mixer(nn.Module):
    """MLP-Mixer with 9 tokens of 10 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 10, 2, 2)
        self.blocks = nn.Sequential(MixerBlock(), MixerBlock())
        self.norm = nn.LayerNorm(10)
        self.head = nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Map 6x6 images to logits."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


class TransformerEncoder(nn.Module):
    """`torch.nn.TransformerEncoder` with its default post-norm layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(5, 12)
        layer = nn.TransformerEncoderLayer(12, nhead=4, dim_feedforward=20, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.head = nn.Linear(12, 7)

    def forward(self, x: Tensor) -> Tensor:
        """Map sequences of vectors to logits."""
        return self.head(self.encoder(self.embed(x)).mean(1))


def gpt2() -> nn.Module:
    """GPT-2 of `transformers`: its `Conv1D` weights are in x out, and the head is tied."""
    from transformers import GPT2Config, GPT2LMHeadModel

    dropout = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
    tokens = {"vocab_size": 17, "bos_token_id": 0, "eos_token_id": 0}
    shape = {"n_positions": 8, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_inner": 20}
    return GPT2LMHeadModel(GPT2Config(**tokens, **shape, **dropout, use_cache=False))


def llama() -> nn.Module:
    """Llama of `transformers`: rotary positions, two key-value heads for four query heads, gated MLP."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokens = {"vocab_size": 17, "bos_token_id": 0, "eos_token_id": 0}
    shape = {"hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2, "max_position_embeddings": 8}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(**tokens, **shape, **heads, use_cache=False))
