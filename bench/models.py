"""Benchmark models: real architectures with random weights, exported by torch.

    python bench/models.py OUT [--tiny] [NAME ...]

runs in an environment with torch 2.13.0 and transformers (see `bench/requirements.txt`), not in the project's own.
`--tiny` makes versions of a few megabytes for software adapters. Next to NAME.onnx stands NAME.json with the inputs:
`{"inputs": {name: {"dtype", "shape", "high" or "fill"}}}`; integers are drawn below `high`, floats from a normal
distribution; an input whose example is one number throughout (a mask of ones) is filled with it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers as tr
from torch import nn
from transformers.models.whisper.modeling_whisper import WhisperEncoder

OPSET = 18

TINY_TEXT = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 500,
}
"""Of an encoder of text, for software adapters."""


@dataclass
class Spec:
    """A module and example inputs by name; `high` bounds integer inputs."""

    module: nn.Module
    inputs: dict[str, torch.Tensor]
    high: int = 0


class First(nn.Module):
    """A transformers model that returns one tensor."""

    def __init__(self, model: nn.Module, pick: Callable[[Any], torch.Tensor]) -> None:
        super().__init__()
        self.model, self.pick = model, pick

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.pick(self.model(*args))


def image(side: int) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(1, 3, side, side)}


def tokens(length: int, high: int) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(0, high, (1, length))}


def resnet50(tiny: bool) -> Spec:
    sizes = {"embedding_size": 16, "hidden_sizes": [32, 64, 96, 128], "depths": [1, 1, 1, 1]} if tiny else {}
    return Spec(
        First(
            tr.ResNetForImageClassification(tr.ResNetConfig(num_labels=1000 if not tiny else 10, **sizes)),
            lambda y: y.logits,
        ),
        image(64 if tiny else 224),
    )


def mobilenetv2(tiny: bool) -> Spec:
    config = tr.MobileNetV2Config(depth_multiplier=0.35 if tiny else 1.0, num_labels=10 if tiny else 1000)
    model = tr.MobileNetV2ForImageClassification(config)
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):  # as trained ones: transformers' own initialisation lets activations vanish
            nn.init.kaiming_normal_(layer.weight)
    return Spec(First(model, lambda y: y.logits), image(64 if tiny else 224))


def vit(tiny: bool) -> Spec:
    sizes = (
        {
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 128,
            "image_size": 64,
            "patch_size": 16,
        }
        if tiny
        else {}
    )
    return Spec(
        First(tr.ViTModel(tr.ViTConfig(**sizes), add_pooling_layer=False), lambda y: y.last_hidden_state),
        image(64 if tiny else 224),
    )


def bert(tiny: bool) -> Spec:
    sizes = TINY_TEXT if tiny else {}
    config = tr.BertConfig(**sizes)
    length = 32 if tiny else 128
    inputs = tokens(length, config.vocab_size) | {"attention_mask": torch.ones(1, length, dtype=torch.int64)}
    return Spec(
        First(tr.BertModel(config, add_pooling_layer=False), lambda y: y.last_hidden_state), inputs, config.vocab_size
    )


def minilm(tiny: bool) -> Spec:
    sizes = {
        "hidden_size": 48 if tiny else 384,
        "num_hidden_layers": 2 if tiny else 6,
        "num_attention_heads": 12,
        "intermediate_size": 96 if tiny else 1536,
        "vocab_size": 500 if tiny else 30522,
    }
    config = tr.BertConfig(**sizes)
    length = 32 if tiny else 128
    inputs = tokens(length, config.vocab_size) | {"attention_mask": torch.ones(1, length, dtype=torch.int64)}
    return Spec(
        First(tr.BertModel(config, add_pooling_layer=False), lambda y: y.last_hidden_state), inputs, config.vocab_size
    )


def gpt2(tiny: bool) -> Spec:
    sizes = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 500, "n_positions": 64} if tiny else {}
    config = tr.GPT2Config(use_cache=False, **sizes)
    return Spec(
        First(tr.GPT2LMHeadModel(config), lambda y: y.logits),
        tokens(32 if tiny else 128, config.vocab_size),
        config.vocab_size,
    )


def whisper_encoder(tiny: bool) -> Spec:
    sizes = (
        {
            "d_model": 64,
            "encoder_layers": 2,
            "encoder_attention_heads": 4,
            "encoder_ffn_dim": 128,
            "max_source_positions": 50,
        }
        if tiny
        else {"d_model": 384, "encoder_layers": 4, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536}
    )
    config = tr.WhisperConfig(**sizes)
    model = WhisperEncoder(config)
    return Spec(
        First(model, lambda y: y.last_hidden_state),
        {"input_features": torch.randn(1, 80, 2 * config.max_source_positions)},
    )


def convnext(tiny: bool) -> Spec:
    sizes = {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 2, 1]} if tiny else {}
    return Spec(
        First(
            tr.ConvNextForImageClassification(tr.ConvNextConfig(num_labels=10 if tiny else 1000, **sizes)),
            lambda y: y.logits,
        ),
        image(64 if tiny else 224),
    )


def segformer(tiny: bool) -> Spec:
    sizes = {"hidden_sizes": [16, 32, 40, 64], "depths": [1, 1, 1, 1], "decoder_hidden_size": 32} if tiny else {}
    config = tr.SegformerConfig(num_labels=10 if tiny else 150, **sizes)
    return Spec(First(tr.SegformerForSemanticSegmentation(config), lambda y: y.logits), image(64 if tiny else 512))


class Unet(nn.Module):
    """Encoder and decoder with skip connections, nearest upsampling, group norm and SiLU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        w = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList([self.block(3, w[0]), self.block(w[0], w[1]), self.block(w[1], w[2])])
        self.up = nn.ModuleList([self.block(w[2] + w[1], w[1]), self.block(w[1] + w[0], w[0])])
        self.last = nn.Conv2d(w[0], 2, 1)

    @staticmethod
    def block(inside: int, outside: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1), nn.GroupNorm(4, outside), nn.SiLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.down[0](x)
        b = self.down[1](nn.functional.max_pool2d(a, 2))
        c = self.down[2](nn.functional.max_pool2d(b, 2))
        b = self.up[0](torch.cat([nn.functional.interpolate(c, scale_factor=2.0), b], 1))
        a = self.up[1](torch.cat([nn.functional.interpolate(b, scale_factor=2.0), a], 1))
        return self.last(a)


class Detector(nn.Module):
    """YOLO-like: convolutions with SiLU at three strides, a neck, heads whose outputs are concatenated."""

    def __init__(self, width: int) -> None:
        super().__init__()

        def conv(i: int, o: int, s: int = 1) -> nn.Module:
            return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.SiLU())

        w = width
        self.stem = nn.Sequential(conv(3, w, 2), conv(w, 2 * w, 2))
        self.stages = nn.ModuleList([conv(2 * w, 4 * w, 2), conv(4 * w, 8 * w, 2), conv(8 * w, 16 * w, 2)])
        self.lateral = nn.ModuleList([conv(4 * w, 4 * w), conv(8 * w, 4 * w), conv(16 * w, 4 * w)])
        self.heads = nn.ModuleList([nn.Conv2d(4 * w, 84, 1) for _ in range(3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, features = self.stem(x), []
        for stage in self.stages:
            features.append(x := stage(x))
        outs, top = [], None
        for f, lateral, head in zip(features[::-1], self.lateral[::-1], self.heads, strict=True):
            y = lateral(f)
            top = y if top is None else y + nn.functional.interpolate(top, scale_factor=2.0)
            outs.append(head(top).flatten(2))
        y = torch.cat(outs, 2)
        return torch.cat([y[:, :4] * 2, y[:, 4:].sigmoid()], 1)


class Lstm(nn.Module):
    """Two bidirectional layers over a series, a linear head on the last step."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(16, width, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class Gru(nn.Module):
    """Two layers, one direction; the last step is classified."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gru = nn.GRU(16, width, 2, batch_first=True)
        self.head = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.gru(x)[0][:, -1])


class LlamaStep(nn.Module):
    """One decoding step of a llama-like decoder over a given cache: RMS norm, rotary embedding, grouped queries."""

    def __init__(
        self, width: int, layers: int, heads: int, kv_heads: int, inner: int, vocabulary: int, past: int
    ) -> None:
        super().__init__()
        self.heads, self.kv, self.size, self.past = heads, kv_heads, width // heads, past
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList()
        for _ in range(layers):
            block = nn.Module()
            block.norm1, block.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
            block.q = nn.Linear(width, width, bias=False)
            block.k = nn.Linear(width, kv_heads * self.size, bias=False)
            block.v = nn.Linear(width, kv_heads * self.size, bias=False)
            block.o = nn.Linear(width, width, bias=False)
            block.gate = nn.Linear(width, inner, bias=False)
            block.up = nn.Linear(width, inner, bias=False)
            block.down = nn.Linear(inner, width, bias=False)
            self.blocks.append(block)
        self.norm = nn.RMSNorm(width)
        self.out = nn.Linear(width, vocabulary, bias=False)
        angle = past / 10000 ** (torch.arange(0, self.size, 2) / self.size)
        self.register_buffer("cos", torch.cat([angle.cos(), angle.cos()]))
        self.register_buffer("sin", torch.cat([angle.sin(), angle.sin()]))

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat([-b, a], -1) * self.sin

    def forward(self, token: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        x = self.embed(token)
        for i, block in enumerate(self.blocks):
            y = block.norm1(x)
            q = self.rotate(block.q(y).view(1, 1, self.heads, self.size).transpose(1, 2))
            k = self.rotate(block.k(y).view(1, 1, self.kv, self.size).transpose(1, 2))
            v = block.v(y).view(1, 1, self.kv, self.size).transpose(1, 2)
            k, v = torch.cat([keys[i], k], 2), torch.cat([values[i], v], 2)
            k = k.repeat_interleave(self.heads // self.kv, 1)
            v = v.repeat_interleave(self.heads // self.kv, 1)
            w = (q @ k.transpose(2, 3) * self.size**-0.5).softmax(-1)
            x = x + block.o((w @ v).transpose(1, 2).reshape(1, 1, -1))
            y = block.norm2(x)
            x = x + block.down(nn.functional.silu(block.gate(y)) * block.up(y))
        return self.out(self.norm(x))


def unet(tiny: bool) -> Spec:
    return Spec(Unet(8 if tiny else 64), {"x": torch.randn(1, 3, *((32, 32) if tiny else (256, 256)))})


def detector(tiny: bool) -> Spec:
    return Spec(Detector(4 if tiny else 16), {"x": torch.randn(1, 3, *((64, 64) if tiny else (640, 640)))})


def lstm(tiny: bool) -> Spec:
    return Spec(Lstm(16 if tiny else 256), {"x": torch.randn(1, 12 if tiny else 64, 16)})


def gru(tiny: bool) -> Spec:
    return Spec(Gru(16 if tiny else 256), {"x": torch.randn(1, 12 if tiny else 64, 16)})


def llama(tiny: bool) -> Spec:
    past = 16 if tiny else 256
    width, layers, heads, kv, inner, words = (64, 2, 4, 2, 128, 500) if tiny else (1024, 8, 16, 4, 2816, 32000)
    module = LlamaStep(width, layers, heads, kv, inner, words, past)
    cache = (layers, 1, kv, past, width // heads)
    inputs = {"token": torch.randint(0, words, (1, 1)), "keys": torch.randn(cache), "values": torch.randn(cache)}
    return Spec(module, inputs, words)


class Chain(nn.Module):
    """Eight square matrix products, one after another."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.weights = nn.ParameterList([torch.randn(side, side) / side**0.5 for _ in range(8)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight in self.weights:
            x = x @ weight
        return x


def chain(side: int) -> Callable[[bool], Spec]:
    return lambda tiny: Spec(
        Chain(side // 16 if tiny else side), {"x": torch.randn(*([side // 16 if tiny else side] * 2))}
    )


MODELS: dict[str, Callable[[bool], Spec]] = {
    "resnet50": resnet50,
    "mobilenetv2": mobilenetv2,
    "vit": vit,
    "bert": bert,
    "minilm": minilm,
    "gpt2": gpt2,
    "whisper_enc": whisper_encoder,
    "convnext": convnext,
    "segformer": segformer,
    "unet": unet,
    "detector": detector,
    "lstm": lstm,
    "gru": gru,
    "llama": llama,
    "mm1024x8": chain(1024),
    "mm2048x8": chain(2048),
    "mm4096x8": chain(4096),
}


def export(name: str, spec: Spec, folder: Path) -> None:
    """NAME.onnx with its weights inside, and NAME.json."""
    path = folder / f"{name}.onnx"
    torch.onnx.export(
        spec.module.eval(),
        tuple(spec.inputs.values()),
        path,
        input_names=list(spec.inputs),
        output_names=["y"],
        opset_version=OPSET,
        dynamo=True,
        external_data=False,
        verbose=False,
    )
    described = {n: describe(t, spec.high) for n, t in spec.inputs.items()}
    (folder / f"{name}.json").write_text(json.dumps({"inputs": described}, indent=1))


def describe(example: torch.Tensor, high: int) -> dict[str, Any]:
    """The entry of NAME.json for an input."""
    entry: dict[str, Any] = {"dtype": str(example.dtype).removeprefix("torch."), "shape": list(example.shape)}
    if example.numel() > 1 and bool((example == example.flatten()[0]).all()):
        return entry | {"fill": example.flatten()[0].item()}
    return entry if example.is_floating_point() else entry | {"high": high}


def main(models: dict[str, Callable[[bool], Spec]], description: str | None) -> None:
    """Export those of `models` that the command line names."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_intermixed_args()  # names after the flag, too
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.names or models:
        torch.manual_seed(0)
        export(name, models[name](args.tiny), args.folder)
        print(name, (args.folder / f"{name}.onnx").stat().st_size, flush=True)


if __name__ == "__main__":
    main(MODELS, __doc__)
