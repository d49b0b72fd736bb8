"""A Llama-style decoder in PyTorch, whose weights are quantized during training."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """Sizes of the network, named as in config.json."""

    vocab_size: int = 4096
    hidden_size: int = 256
    intermediate_size: int = 704
    num_hidden_layers: int = 5
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    max_position_embeddings: int = 1024
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    block_size: int = 32


def quantize(weight: Tensor, bits: int, block: int) -> tuple[Tensor, Tensor]:
    """Quantize `[N, K]` to integers `[N, K]` in 0..2^bits - 1 and scales `[N, K / block]`.

    A weight is (integer - 2^(bits - 1)) * scale; the value of a block furthest from 0 becomes the lowest integer,
    exactly.
    """
    blocks = weight.unflatten(1, (-1, block))
    furthest = blocks.gather(2, blocks.abs().argmax(2, keepdim=True))
    scales = furthest / -(2 ** (bits - 1))
    scales = torch.where(scales == 0, torch.ones_like(scales), scales)
    integers = (blocks / scales + 2 ** (bits - 1)).round().clamp(0, 2**bits - 1)
    return integers.flatten(1), scales[..., 0]


class Quantized(nn.Module):  # type: ignore[misc]
    """The weight of a linear layer or an embedding, `[N, K]`, quantized to `bits` bits once `coarse` is set.

    Gradients ignore the rounding (straight-through estimator, Bengio et al. 2013).
    """

    def __init__(self, rows: int, columns: int, bits: int, block: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns) * 0.02)
        self.bits, self.block, self.coarse = bits, block, False

    def values(self) -> Tensor:
        if not self.coarse:
            return self.weight
        with torch.no_grad():
            integers, scales = quantize(self.weight, self.bits, self.block)
            levels = integers.unflatten(1, (-1, self.block)) - 2 ** (self.bits - 1)
            values = (levels * scales[..., None]).flatten(1)
        return self.weight + (values - self.weight).detach()

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.values())


def rotary(shape: Shape) -> tuple[Tensor, Tensor]:
    """Return cosines and sines, each `[max_position_embeddings, head_dim / 2]`."""
    frequencies = shape.rope_theta ** (-torch.arange(0, shape.head_dim, 2) / shape.head_dim)
    angles = torch.arange(shape.max_position_embeddings)[:, None] * frequencies
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair (i, i + D / 2) of x `[B, H, S, D]` by the angle of its position."""
    low, high = x.chunk(2, -1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)


class Layer(nn.Module):  # type: ignore[misc]
    """x + attention(norm(x)), then that + down(silu(gate) * up) of its norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        hidden, inner, head = shape.hidden_size, shape.intermediate_size, shape.head_dim
        heads, caches = shape.num_attention_heads, shape.num_key_value_heads
        self.input_norm = nn.RMSNorm(hidden, shape.rms_norm_eps)
        self.qkv = Quantized((heads + 2 * caches) * head, hidden, 4, shape.block_size)
        self.output = Quantized(hidden, heads * head, 4, shape.block_size)
        self.post_norm = nn.RMSNorm(hidden, shape.rms_norm_eps)
        self.gate_up = Quantized(2 * inner, hidden, 4, shape.block_size)
        self.down = Quantized(hidden, inner, 4, shape.block_size)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, dropout: float) -> Tensor:
        shape, batch, length = self.shape, x.shape[0], x.shape[1]
        heads, caches, head = shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim
        packed = self.qkv(self.input_norm(x)).view(batch, length, -1, head).transpose(1, 2)
        query, key, value = packed.split((heads, caches, caches), 1)
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        key, value = (cache.repeat_interleave(heads // caches, 1) for cache in (key, value))
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        y = self.output(attended.transpose(1, 2).flatten(2))
        x = x + functional.dropout(y, dropout, self.training)
        gate, up = self.gate_up(self.post_norm(x)).chunk(2, -1)
        return x + functional.dropout(self.down(functional.silu(gate) * up), dropout, self.training)


class Writer(nn.Module):  # type: ignore[misc]
    """Token ids `[B, S]` -> logits `[B, S, vocab_size]`; the embedding table is also the output projection."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.table = Quantized(shape.vocab_size, shape.hidden_size, 8, shape.block_size)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_hidden_layers))
        self.norm = nn.RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        cos, sin = rotary(shape)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def coarsen(self) -> None:
        """Use quantized weights from now on."""
        for module in self.modules():
            if isinstance(module, Quantized):
                module.coarse = True

    def forward(self, ids: Tensor, dropout: float = 0.0) -> Tensor:
        table = self.table.values()
        x = functional.embedding(ids, table)
        cos, sin = self.cos[: ids.shape[1]].to(x.dtype), self.sin[: ids.shape[1]].to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin, dropout)
        return functional.linear(self.norm(x), table)
