"""Architectures of ten other families than those of `bench/models.py`, with attention as onnxruntime-web runs it best.

    python bench/families.py OUT [--tiny] [NAME ...]

As `bench/models.py`, in the same environment. Attention is exported from its plain form ("eager"): two products and a
softmax, which onnxruntime-web runs on the GPU, where it sends the other exported form to its CPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as tr
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.models import TINY_TEXT, First, Spec, image, main, tokens


def eager(kind: Any, config: Any) -> Any:
    """The model with random weights."""
    return kind._from_config(config, attn_implementation="eager")


def last_hidden_state(kind: Any, config: Any, inputs: dict[str, torch.Tensor], high: int = 0) -> Spec:
    return Spec(First(eager(kind, config), lambda y: y.last_hidden_state), inputs, high)


def clip(tiny: bool) -> Spec:
    sizes = (
        {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
        if tiny
        else {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
    )
    side = 64 if tiny else 224
    config = tr.CLIPVisionConfig(image_size=side, patch_size=16 if tiny else 32, **sizes)
    return last_hidden_state(tr.CLIPVisionModel, config, image(side))


def dinov2(tiny: bool) -> Spec:
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4} if tiny else {}
    side = 56 if tiny else 224
    config = tr.Dinov2Config(image_size=side, patch_size=14, **sizes)
    return last_hidden_state(tr.Dinov2Model, config, image(side))


def efficientnet(tiny: bool) -> Spec:
    scale = 0.25 if tiny else 1.0
    sizes = {"width_coefficient": scale, "depth_coefficient": scale, "hidden_dim": int(1280 * scale)}
    config = tr.EfficientNetConfig(image_size=64 if tiny else 224, **sizes)
    model = tr.EfficientNetForImageClassification(config)
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):  # as trained ones: the own initialisation lets activations vanish
            nn.init.kaiming_normal_(layer.weight)
    return Spec(First(model, lambda y: y.logits), image(64 if tiny else 224))


def glpn(tiny: bool) -> Spec:
    sizes = (
        {
            "hidden_sizes": [16, 32, 40, 64],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 2, 4],
            "decoder_hidden_size": 32,
        }
        if tiny
        else {}
    )
    model = eager(tr.GLPNForDepthEstimation, tr.GLPNConfig(**sizes))
    return Spec(First(model, lambda y: y.predicted_depth), image(64 if tiny else 224))


def mobilevit(tiny: bool) -> Spec:
    sizes = {"hidden_sizes": [32, 48, 64], "neck_hidden_sizes": [8, 16, 24, 32, 40, 64, 96]} if tiny else {}
    model = eager(tr.MobileViTForImageClassification, tr.MobileViTConfig(num_labels=10 if tiny else 1000, **sizes))
    return Spec(First(model, lambda y: y.logits), image(64 if tiny else 256))


def pvt(tiny: bool) -> Spec:
    sizes = (
        {"hidden_sizes": [16, 24, 32, 48], "num_attention_heads": [1, 2, 4, 8], "depths": [1, 1, 1, 1]} if tiny else {}
    )
    side = 64 if tiny else 224
    model = eager(tr.PvtForImageClassification, tr.PvtConfig(image_size=side, num_labels=10 if tiny else 1000, **sizes))
    return Spec(First(model, lambda y: y.logits), image(side))


def roberta(tiny: bool) -> Spec:
    sizes = TINY_TEXT if tiny else {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1}
    config = tr.RobertaConfig(**sizes)
    length = 32 if tiny else 128
    inputs = tokens(length, config.vocab_size) | {"attention_mask": torch.ones(1, length, dtype=torch.int64)}
    return last_hidden_state(tr.RobertaModel, config, inputs, config.vocab_size)


def swin(tiny: bool) -> Spec:
    sizes = {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4, "patch_size": 4} if tiny else {}
    side = 64 if tiny else 224
    return last_hidden_state(tr.SwinModel, tr.SwinConfig(image_size=side, **sizes), image(side))


def t5(tiny: bool) -> Spec:
    sizes = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": 500} if tiny else {}
    config = tr.T5Config(**sizes)
    length = 32 if tiny else 128
    inputs = tokens(length, config.vocab_size) | {"attention_mask": torch.ones(1, length, dtype=torch.int64)}
    return last_hidden_state(tr.T5EncoderModel, config, inputs, config.vocab_size)


def wav2vec2(tiny: bool) -> Spec:
    sizes = (
        {
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 128,
            "conv_dim": (32,) * 7,
            "num_conv_pos_embeddings": 16,
            "num_conv_pos_embedding_groups": 4,
        }
        if tiny
        else {}
    )
    model = eager(tr.Wav2Vec2Model, tr.Wav2Vec2Config(**sizes))
    for layer in model.modules():  # exporters do not follow a weight that is computed from two others
        if hasattr(layer, "parametrizations"):
            torch.nn.utils.parametrize.remove_parametrizations(layer, "weight")
    inputs = {"input_values": torch.randn(1, 4000 if tiny else 16000)}
    return Spec(First(model, lambda y: y.last_hidden_state), inputs)


FAMILIES: dict[str, Callable[[bool], Spec]] = {
    "clip": clip,
    "dinov2": dinov2,
    "efficientnet": efficientnet,
    "glpn": glpn,
    "mobilevit": mobilevit,
    "pvt": pvt,
    "roberta": roberta,
    "swin": swin,
    "t5": t5,
    "wav2vec2": wav2vec2,
}

if __name__ == "__main__":
    main(FAMILIES, __doc__)
