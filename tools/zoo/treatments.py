"""Treatments by name, and the models that they apply to.

Each runs the tool's code (`treating`). A file that the tool refuses to write does not count; a file that onnxruntime
runs has to run here.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tools.zoo.treating import (
    Exported,
    Function,
    bnb4,
    brain,
    branches,
    converted,
    dynamic,
    external,
    fused,
    fused_half,
    half,
    optimized,
    packed,
    prefixed,
    simplified,
    slimmed,
    static,
    stripped,
    then,
)

__all__ = ["TREATMENTS", "Exported", "Treatment", "chosen"]


@dataclass(frozen=True)
class Treatment:
    """A treatment.

    Attributes:
        kind: required accuracy: 'same' (float32, other order of operations), 'half' (float16 or bfloat16), 'steps'
            (quantized activations, which round differently if sums have another order).
        models: pattern of the definitions' names; empty: all.
    """

    name: str
    run: Function
    kind: str = "same"
    models: str = ""

    def applies(self, name: str) -> bool:
        """Return whether it applies to the model of this name."""
        return re.fullmatch(self.models, name) is not None if self.models else True


p = functools.partial

_FUSED: Mapping[str, str] = {
    "bert": r".*bert.*|electra|ernie|esm|mpnet|layoutlm|xlm.*|tapas|data2vec.*|roformer|distil.*",
    "gpt2": r"gpt.*|codegen|bloom|opt|biogpt|imagegpt|xglm|ctrl|decision_transformer",
    "gpt_neox": r"gpt_neox.*|llama.*|stablelm|persimmon",
    "phi": r"phi.*",
    "qwen3": r"qwen.*|llama.*|mistral|gemma.*|smollm3|olmo.*",
    "bart": r"bart.*|mbart|m2m_100|marian|pegasus|blenderbot.*|whisper|speech_to_text|trocr|plbart|mvp",
    "t5": r".*t5.*|switch_transformers",
    "vit": r"vit.*|deit|beit|dinov.*|ijepa|.*vision.*|hubert|wav2vec2.*|audio-spec.*|videomae|vivit",
    "swin": r".*swin.*|nest|maxvit.*",
    "clip": r".*clip.*|siglip.*|owlvit|blip|git",
    "conformer": r".*conformer|wav2vec2-bert|parakeet_ctc",
    "sam2": r"sam.*|hieradet.*|hiera|vitdet|vision_transformer_sam",
    "tnlr": r"deberta.*|wavlm|.*bert.*",
    "unet": r"UNet.*|ControlNet.*|Transformer2D.*|res(net|nest).*",
    "vae": r"Auto.*|Consistency.*|VQ.*",
    "mmdit": r"SD3.*|DiT.*",
}


def _fusions() -> list[Treatment]:
    made = []
    typed = {"DefaultTensorType": 1}  # types unknown to the quantizer's shape inference are float
    for kind, models in _FUSED.items():
        for level in (0, 1, 2, 99):
            made.append(Treatment(f"fused_{kind}_{level}", p(fused, kind=kind, level=level), models=models))
        made.append(Treatment(f"fused_{kind}_gpu", p(fused, kind=kind, level=0, gpu=True), models=models))
        plain: dict[str, Any] = {"use_multi_head_attention": True, "enable_bias_splitgelu": True}
        made.append(Treatment(f"fused_{kind}_mha", p(fused, kind=kind, level=0, gpu=True, **plain), models=models))
        made.append(Treatment(f"fused_{kind}_half", p(fused_half, kind=kind), "half", models))
        made.append(
            Treatment(
                f"fused_{kind}_then_all", then(p(fused, kind=kind, level=0), p(optimized, level="ALL")), models=models
            )
        )
        quantised = then(p(fused, kind=kind, level=0), p(dynamic, weight="QInt8", extra_options=typed))
        made.append(Treatment(f"fused_{kind}_then_dynamic", quantised, "steps", models))
    return made


_STATIC: Mapping[str, tuple[str, str, dict[str, Any]]] = {
    "qdq_u8s8": ("QDQ", "U8S8", {}),
    "qdq_u8u8_channels": ("QDQ", "U8U8", {"per_channel": True}),
    "qdq_s8s8_channels": ("QDQ", "S8S8", {"per_channel": True, "extra_options": {"ActivationSymmetric": True}}),
    "qdq_u8s8_weights": ("QDQ", "U8S8", {"extra_options": {"AddQDQPairToWeight": True, "DedicatedQDQPair": True}}),
    "qdq_u8s8_kept": ("QDQ", "U8S8", {"reduce_range": True, "per_channel": True,
                                      "extra_options": {"QDQKeepRemovableActivations": True}}),
    "qdq_u8s8_bias": ("QDQ", "U8S8", {"extra_options": {"QuantizeBias": False}}),
    "qdq_u16s8": ("QDQ", "U16S8", {"extra_options": {"UseQDQContribOps": True}}),
    "qdq_u16u16": ("QDQ", "U16U16", {}),
    "qdq_s16s16": ("QDQ", "S16S16", {"extra_options": {"ActivationSymmetric": True}}),
    "qdq_u16u4": ("QDQ", "U16U4", {}),
    "qdq_u8s4_channels": ("QDQ", "U8S4", {"per_channel": True}),
    "qop_u8u8": ("QOperator", "U8U8", {}),
    "qop_u8s8_channels": ("QOperator", "U8S8", {"per_channel": True, "reduce_range": True}),
    "qop_s8s8": ("QOperator", "S8S8", {"extra_options": {"ActivationSymmetric": True, "WeightSymmetric": True}}),
    "qop_u8s8_all": ("QOperator", "U8S8", {"extra_options": {"MatMulConstBOnly": False,
                                                              "ForceQuantizeNoInputCheck": True}}),
}  # fmt: skip
_DYNAMIC: Mapping[str, dict[str, Any]] = {
    "dynamic_s8": {"weight": "QInt8"},
    "dynamic_u8_channels": {"weight": "QUInt8", "per_channel": True},
    "dynamic_s8_reduced": {"weight": "QInt8", "per_channel": True, "reduce_range": True},
    "dynamic_u8_both": {"weight": "QUInt8", "extra_options": {"MatMulConstBOnly": False}},
    "dynamic_s8_symmetric": {
        "weight": "QInt8",
        "extra_options": {"WeightSymmetric": False, "ActivationSymmetric": True},
    },
}
_PACKED: Mapping[str, dict[str, Any]] = {
    "nbits_4_16": {"bits": 4, "block_size": 16},
    "nbits_4_32_symmetric": {"bits": 4, "block_size": 32, "is_symmetric": True, "accuracy_level": 0},
    "nbits_4_32_level1": {"bits": 4, "block_size": 32, "accuracy_level": 1},
    "nbits_4_64_level4": {"bits": 4, "block_size": 64, "accuracy_level": 4},
    "nbits_4_256": {"bits": 4, "block_size": 256},
    "nbits_4_gather": {"bits": 4, "block_size": 32, "gather": True},
    "nbits_8_32": {"bits": 8, "block_size": 32},
    "nbits_8_128_symmetric": {"bits": 8, "block_size": 128, "is_symmetric": True},
    "nbits_2_32": {"bits": 2, "block_size": 32},
    "nbits_4_qdq": {"bits": 4, "block_size": 32, "form": "QDQ"},
    "nbits_4_qdq_symmetric": {"bits": 4, "block_size": 16, "form": "QDQ", "is_symmetric": True, "gather": True},
    "nbits_8_qdq": {"bits": 8, "block_size": 32, "form": "QDQ"},
    "nbits_4_qdq_channels": {"bits": 4, "block_size": 32, "form": "QDQ", "channel_wised_quantize": True},
}


def _all() -> dict[str, Treatment]:
    common = "onnxconverter_common.float16"
    made = [Treatment(f"ort_{level.lower()}", p(optimized, level=level)) for level in ("BASIC", "EXTENDED", "ALL")]
    made += _fusions()
    for name, (form, kinds, options) in _STATIC.items():
        quantize = p(static, form=form, kinds=kinds, **options)
        made.append(Treatment(name, quantize, "steps"))
        for level in ("EXTENDED", "ALL"):
            made.append(Treatment(f"{name}_then_{level.lower()}", then(quantize, p(optimized, level=level)), "steps"))
    for name, options in _DYNAMIC.items():
        made.append(Treatment(name, p(dynamic, **options), "steps"))
        made.append(Treatment(f"{name}_then_all", then(p(dynamic, **options), p(optimized, level="ALL")), "steps"))
    for name, options in _PACKED.items():
        kind = "steps" if options.get("accuracy_level") == 4 else "same"
        made.append(Treatment(name, p(packed, **options), kind))
        if "qdq" in name:
            made.append(Treatment(f"{name}_then_all", then(p(packed, **options), p(optimized, level="ALL")), "steps"))
    made += [
        Treatment("bnb4_fp4", p(bnb4, kind=0, block=64)),
        Treatment("bnb4_nf4", p(bnb4, kind=1, block=32)),
        Treatment("half", half, "half"),
        Treatment("half_kept_io", p(half, keep_io_types=True), "half"),
        Treatment("half_blocked", p(half, keep_io_types=True, op_block_list=["LayerNormalization", "Softmax"]), "half"),
        Treatment("half_forced", p(half, force_fp16_initializers=True, op_block_list=[]), "half"),
        Treatment("half_common", p(half, module=common), "half"),
        Treatment("half_common_kept_io", p(half, module=common, keep_io_types=True), "half"),
        Treatment("half_then_all", then(half, p(optimized, level="ALL")), "half"),
        Treatment("half_then_nbits", then(half, p(packed, bits=4, block_size=32)), "half"),
        Treatment("brain", brain, "half"),
        Treatment("slimmed", slimmed),
        Treatment("simplified", simplified),
        Treatment("opset_up", p(converted, by=3)),
        Treatment("opset_latest", p(converted, by=99)),
        Treatment("opset_down", p(converted, by=-2)),
        Treatment("external_one", p(external, one_file=True)),
        Treatment("external_many", p(external, one_file=False)),
        Treatment("stripped", stripped),
        Treatment("prefixed", prefixed),
        Treatment("branches", branches),
    ]
    return {t.name: t for t in made}


TREATMENTS: Mapping[str, Treatment] = _all()


def chosen(model: str, names: Sequence[str] = ()) -> list[Treatment]:
    """Return the treatments for a model, restricted to these names (or patterns) if there are any."""
    patterns = [re.compile(name) for name in names]
    return [
        t
        for t in TREATMENTS.values()
        if t.applies(model) and (not patterns or any(r.fullmatch(t.name) for r in patterns))
    ]
