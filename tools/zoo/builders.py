"""Builders of small models with random weights, for each source. They need torch."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

import torch

from tools.zoo.definitions import Definition

__all__ = ["Flat", "build", "feeds", "prepare_torchvision", "randomize"]

SMALL: Mapping[str, int] = {
    **dict.fromkeys(("vocab_size", "decoder_vocab_size", "text_vocab_size"), 96),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "decoder_hidden_size", "dec_hidden_size"), 32),
    **dict.fromkeys(("projection_dim", "logit_projection_dim", "d_inner", "embed_dim"), 32),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim", "n_inner"), 64),
    **dict.fromkeys(("hidden_dim", "ffn_hidden_size", "decoder_intermediate_size"), 64),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_hidden_layers", "n_layer", "n_layers", "num_layers"), 2),
    **dict.fromkeys(("num_decoder_layers", "num_encoder_layers", "decoder_num_hidden_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_num_attention_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads"), 2),
    **dict.fromkeys(("head_dim", "d_kv", "attention_head_size"), 8),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_target_positions"), 64),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_k"), 2),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "expert_ffn_dim"), 32),
    **dict.fromkeys(("embedding_size",), 16),
    **dict.fromkeys(("num_conv_pos_embeddings"), 16),
    **dict.fromkeys(("emb_dim",), 32),
    "n_words": 96,
    "num_conv_pos_embedding_groups": 4,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "sep_token_id": 2,
    "image_size": 64,
}
"""What a configuration's setting becomes where it has one of that name and it is a larger number."""


def prepare_torchvision() -> None:
    """Import torchvision, even a build without compiled operators, by declaring their schemas."""
    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError):
        for name in [n for n in sys.modules if n.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for schema in SCHEMAS:
            library.define(schema)
        kept.append(library)


SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qroi_align(Tensor input, Tensor rois, float scale, int height, int width, int ratio, bool aligned) -> Tensor",
    *(
        f"{name}(Tensor x) -> Tensor"
        for stem in ("roi_align", "ps_roi_align", "roi_pool", "ps_roi_pool", "deform_conv2d")
        for name in (stem, f"_{stem}_backward")
    ),
)
kept: list[Any] = []
"""A library of operators lives as long as its object."""


def build(definition: Definition, eager: bool) -> Any:
    """Build the model. `eager`: attention is written out, for the old exporter."""
    torch.manual_seed(0)
    made = globals()[f"_{definition.source}"](definition, eager)
    randomize(made)
    return made.eval()


def _transformers(definition: Definition, eager: bool) -> Any:
    import transformers

    kind, _, head = definition.make.partition(":")
    config = _small_config(transformers.CONFIG_MAPPING[kind], dict(definition.config))
    config._attn_implementation = "eager" if eager else "sdpa"  # private: configs have no public setting
    # The other implementations count tokens by an operator that cannot be exported.
    config._experts_implementation = "batched_mm"  # private: configs have no public setting
    cls = getattr(transformers, head or "AutoModel")
    try:
        return cls.from_config(config) if hasattr(cls, "from_config") else cls(config)
    except ValueError as error:
        if "attn" not in str(error) and "attention" not in str(error):
            raise
        config._attn_implementation = "eager"  # private: as above
        return cls.from_config(config) if hasattr(cls, "from_config") else cls(config)


def _small_config(cls: Any, given: dict[str, Any]) -> Any:
    base = cls()
    data = base.to_dict()
    settings = _small_settings(data, cls)
    for name, sub in getattr(cls, "sub_configs", {}).items():
        inner = getattr(base, name, None)
        if inner is None:
            continue
        own = given.pop(name, {})
        settings[name] = {**_small_settings(inner.to_dict(), type(inner)), **own}
        if getattr(inner, "model_type", ""):
            settings[name].setdefault("model_type", inner.model_type)
        del sub
    for name in ("use_cache", "return_dict"):
        if name in data and name == "use_cache":
            settings[name] = False
    return cls(**{**settings, **given})


def _small_settings(data: Mapping[str, Any], cls: Any) -> dict[str, Any]:
    names = {v: k for k, v in getattr(cls, "attribute_map", {}).items()}
    found: dict[str, Any] = {}
    for name, small in SMALL.items():
        value = data.get(name)
        if names.get(name) in data:
            continue
        if isinstance(value, int) and not isinstance(value, bool) and value > small:
            found[name] = small
    if isinstance(data.get("layer_types"), list) and len(data["layer_types"]) > 2:
        kinds = list(dict.fromkeys(data["layer_types"]))
        found["layer_types"] = (kinds * 2)[: max(2, len(kinds))]
        found["num_hidden_layers"] = len(found["layer_types"])
    return found


def _timm(definition: Definition, eager: bool) -> Any:
    prepare_torchvision()
    import timm
    from timm.layers import set_fused_attn

    set_fused_attn(not eager)
    return timm.create_model(definition.make, pretrained=False, **definition.config)


def _torchvision(definition: Definition, eager: bool) -> Any:
    prepare_torchvision()
    models = importlib.import_module("torchvision.models")
    config = {"weights": None, **definition.config}
    if any(word in definition.make for word in ("deeplab", "fcn", "lraspp", "rcnn", "ssd", "retinanet", "fcos")):
        config["weights_backbone"] = None
    return models.get_model(definition.make, **config)


def _diffusers(definition: Definition, eager: bool) -> Any:
    prepare_torchvision()
    diffusers = importlib.import_module("diffusers")
    made = getattr(diffusers, definition.make)(**definition.config)
    if eager and hasattr(made, "set_attn_processor"):
        made.set_attn_processor(importlib.import_module("diffusers.models.attention_processor").AttnProcessor())
    return made


def randomize(model: Any) -> None:
    """Replace constant initial values (norms, layer scales, biases, statistics) by random ones of similar size.

    A layer scale of 1e-6 would hide the errors of its operand.
    """
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if not value.is_floating_point() or not value.numel():
                continue
            statistic = name.rsplit(".", 1)[-1]
            if statistic in ("running_mean", "running_var"):
                noise = torch.rand(value.shape, generator=random)
                value.copy_(0.2 * noise - 0.1 if statistic == "running_mean" else 0.8 + 0.4 * noise)
            elif isinstance(value, torch.nn.Parameter) and value.numel() > 1 and _constant(value):
                size = float(value.flatten()[0].abs())
                base = value if size > 1e-3 else torch.full_like(value, 0.1 if size else 0.0)
                value.copy_(base + 0.1 * torch.randn(value.shape, generator=random).to(value.dtype))


def _constant(value: Any) -> bool:
    return bool((value == value.flatten()[0]).all())


def feeds(definition: Definition, run: int, vocabulary: int) -> dict[str, Any]:
    """Return random inputs by name."""
    random = torch.Generator().manual_seed(10 + run)
    made = {}
    for name, told in definition.inputs.items():
        shape, kind = definition.shape(name, run), told.split()[0]
        if kind == "tokens":
            made[name] = torch.randint(3, vocabulary, shape, generator=random)
        elif kind == "ones":
            made[name] = torch.ones(shape, dtype=torch.int64)
        elif kind == "mask":
            made[name] = torch.ones(shape, dtype=torch.int64)
            made[name][-1, -2:] = 0
        elif kind == "zeros":
            made[name] = torch.zeros(shape, dtype=torch.int64)
        elif kind == "boxes":
            corner = torch.randint(0, 400, (*shape[:-1], 2), generator=random)
            made[name] = torch.cat([corner, corner + torch.randint(1, 99, corner.shape, generator=random)], -1)
        elif kind == "true":
            made[name] = torch.ones(shape, dtype=torch.bool)
        elif kind == "uniform":
            made[name] = torch.rand(shape, generator=random)
        elif kind == "step":
            made[name] = torch.full(shape, 7, dtype=torch.int64)
        else:
            made[name] = torch.randn(shape, generator=random)
    return made


class Flat(torch.nn.Module):
    """Wraps a model with the definition's inputs in order; its outputs are the first tensors that the model returns."""

    MOST = 4

    def __init__(self, model: Any, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names
        self.positional = type(model).__module__.split(".")[0] in ("timm", "torchvision", "torch")

    def forward(self, *given: Any) -> Any:
        """See the class."""
        if self.positional:
            made = self.model(*given)
        else:
            made = self.model(**dict(zip(self.names, given, strict=True)))
        return tuple(_tensors(made)[: self.MOST])


def _tensors(made: Any) -> list[Any]:
    if isinstance(made, torch.Tensor):
        return [made]
    if isinstance(made, Mapping):
        return [t for v in made.values() for t in _tensors(v)]
    if isinstance(made, list | tuple):
        return [t for v in made for t in _tensors(v)]
    return [t for v in vars(made).values() for t in _tensors(v)] if hasattr(made, "sample") else []
