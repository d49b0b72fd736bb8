"""Repositories of small models that match words with sounds, boxes and documents: CLAP, OWL-ViT, Donut."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from e2e.transformers import architectures as networks
from e2e.transformers.architectures import HEADS, PATCH, PIXELS, WIDTH
from e2e.transformers.network import INT64, Network, value
from e2e.transformers.pictures import image_processor
from e2e.transformers.tokenizers import byte_pairs, word_pieces
from e2e.transformers.writing import Json, write_repository

__all__ = ["write_matching"]

MELS, FRAMES = 16, 12
SIDE = 32
PAGE = (40, 24)
"""Height and width of a document in pixels."""


def write_matching(folder: Path) -> None:
    """`sounds-by-words`, `boxes-by-words` and `documents` below `folder`."""
    files, size = word_pieces()
    config: Json = {"model_type": "clap", "architectures": ["ClapModel"], "projection_dim": WIDTH}
    features = {
        "feature_extractor_type": "ClapFeatureExtractor",
        "sampling_rate": 16000,
        "nb_frequency_bins": 129,
        "fft_window_size": 256,
        "feature_size": MELS,
        "frequency_min": 50,
        "frequency_max": 7000,
        "hop_length": 160,
        "nb_max_samples": FRAMES * 160,
        "truncation": "rand_trunc",
        "padding": "repeatpad",
    }
    own = {"config": config, "preprocessor_config": features}
    write_repository(folder / "sounds-by-words", {**files, **own}, {"model": _clap(size)})
    config = {"model_type": "owlvit", "architectures": ["OwlViTForObjectDetection"]}
    own = {"config": config, "preprocessor_config": image_processor("OwlViTFeatureExtractor", SIDE)}
    write_repository(folder / "boxes-by-words", {**files, **own}, {"model": _owl(size)})
    _write_documents(folder / "documents")


def _write_documents(folder: Path) -> None:
    """Answers end where they must, at the last token, so that a model of random weights gives one."""
    files, size = byte_pairs()
    marks = ["<s_docvqa>", "<s_question>", "</s_question>", "<s_answer>", "</s_answer>"]
    ids = {mark: size + i for i, mark in enumerate(marks)}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    tokenizer = dict(files["tokenizer"])
    tokenizer["added_tokens"] = [
        *tokenizer["added_tokens"],
        *({"id": i, "content": mark, **flags} for mark, i in ids.items()),
    ]
    ends = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1, "decoder_start_token_id": ids["<s_docvqa>"]}
    config: Json = {
        "model_type": "vision-encoder-decoder",
        "architectures": ["VisionEncoderDecoderModel"],
        "is_encoder_decoder": True,
        "encoder": {"model_type": "donut-swin", "hidden_size": WIDTH},
        "decoder": {
            "model_type": "mbart",
            "vocab_size": size + len(marks),
            "d_model": WIDTH,
            **{f"{part}_layers": 1 for part in ("encoder", "decoder")},
            **{f"{part}_attention_heads": HEADS for part in ("encoder", "decoder")},
            "max_position_embeddings": 96,
        },
        **ends,
    }
    height, width = PAGE
    how = {
        "size": {"height": height, "width": width},
        "do_thumbnail": True,
        "do_align_long_axis": False,
        "do_pad": True,
    }
    own = {
        "config": config,
        "generation_config": {**ends, "forced_eos_token_id": ids["</s_answer>"]},
        "preprocessor_config": image_processor("DonutImageProcessor", height, **how),
    }
    models = {
        "encoder_model": networks.image_encoder(height // PATCH * (width // PATCH)),
        "decoder_model_merged": networks.merged_decoder(size + len(marks), masked=False, seed=43),
    }
    write_repository(folder, {**files, **own, "tokenizer": tokenizer}, models)


def _unit(net: Network, x: str) -> str:
    """Rows of length 1, as exporters write `normalize`: x / expand(max(norm, 1e-12))."""
    length = net.op("ReduceL2", x, axes=[-1], keepdims=1)
    length = net.op("Clip", length, net.constant(1e-12, np.float32))
    return net.op("Div", x, net.op("Expand", length, net.op("Shape", x)))


def _words(net: Network, vocabulary: int, ids: str, mask: str) -> str:
    """The layer of a text encoder, [texts, s, width]."""
    x = net.op("Gather", net.weight(vocabulary, WIDTH, scale=1), ids)
    places = net.op("Range", net.constant(0), net.size(ids, 1), net.constant(1))
    x = net.op("Add", x, net.op("Gather", net.weight(64, WIDTH, scale=0.5), places))
    return net.norm(net.layer(x, WIDTH, HEADS, net.mask_bias(mask)), WIDTH)


def _batch_norm(net: Network, x: str, channels: int) -> str:
    mean, variance = net.weight(channels, scale=3), net.constant(np.linspace(20, 90, channels), np.float32)
    ones = net.constant(np.ones(channels), np.float32)
    return net.op("BatchNormalization", x, ones, net.weight(channels, scale=0.1), mean, variance, epsilon=1e-5)


def _clap(vocabulary: int) -> bytes:
    """logits_per_audio [sounds, texts], its transpose, text_embeds and audio_embeds of input_features [b, 1, t, mels].

    As HTSAT's: a norm of each mel, resampled in time by cubic interpolation to 16 frames, bands of mels as patches.
    """
    net = Network(41)
    texts = net.op("Gather", _words(net, vocabulary, "input_ids", "attention_mask"), net.constant(0), axis=1)
    y = _batch_norm(net, net.op("Transpose", "input_features", perm=[0, 3, 2, 1]), MELS)
    y = net.op("Transpose", y, perm=[0, 3, 2, 1])
    ends = net.op("Slice", net.op("Shape", y), net.constant([0]), net.constant([2]), net.constant([0]))
    goal = net.op("Concat", ends, net.constant([16, MELS]), axis=0)
    how = "align_corners"
    y = net.op("Resize", y, "", "", goal, mode="cubic", cubic_coeff_a=-0.75, coordinate_transformation_mode=how)
    y = net.op("Conv", y, net.weight(WIDTH, 1, 4, 4, scale=0.2), strides=[4, 4])
    y = net.op("Transpose", net.op("Reshape", y, net.constant([0, WIDTH, -1])), perm=[0, 2, 1])
    y = net.norm(net.layer(net.norm(y, WIDTH), WIDTH, HEADS), WIDTH)
    sounds = net.op("ReduceMean", y, axes=[1], keepdims=0)
    embeds = []
    for x, name in ((texts, "text_embeds"), (sounds, "audio_embeds")):
        x = net.linear(net.op("Relu", net.linear(x, WIDTH, WIDTH)), WIDTH, WIDTH)
        embeds.append(net.op("Identity", _unit(net, x), name=name))
    scale = net.op("Exp", net.constant(2.0, np.float32))
    alike = net.op("Mul", net.op("MatMul", embeds[1], net.op("Transpose", embeds[0], perm=[1, 0])), scale)
    net.op("Identity", alike, name="logits_per_audio")
    net.op("Transpose", alike, perm=[1, 0], name="logits_per_text")
    inputs = [value(name, ["text_batch", "length"], INT64) for name in ("input_ids", "attention_mask")]
    outputs = [
        value("logits_per_audio", ["audio_batch", "text_batch"]),
        value("logits_per_text", ["text_batch", "audio_batch"]),
        value("text_embeds", ["text_batch", WIDTH]),
        value("audio_embeds", ["audio_batch", WIDTH]),
    ]
    return net.model([*inputs, value("input_features", ["audio_batch", 1, "frames", MELS])], outputs)


def _owl(vocabulary: int) -> bytes:
    """logits [b, patches, texts] and pred_boxes [b, patches, 4] of pixel_values and input_ids [texts, s].

    How alike a patch and a text are is shifted and scaled by what the patch says; texts of padding are far away.
    """
    net = Network(42)
    patches = (SIDE // PATCH) ** 2
    words = _words(net, vocabulary, "input_ids", "attention_mask")
    end = net.op("ArgMax", "input_ids", axis=1, keepdims=0)
    hot = net.op("OneHot", end, net.size("input_ids", 1), net.constant([0, 1], np.float32), axis=-1)
    texts = net.op("Einsum", words, hot, equation="tsc,ts->tc")
    x = net.op("Conv", "pixel_values", net.weight(WIDTH, 3, PATCH, PATCH, scale=0.1), strides=[PATCH, PATCH])
    x = net.op("Transpose", net.op("Reshape", x, net.constant([0, WIDTH, -1])), perm=[0, 2, 1])
    x = net.layer(net.op("Add", x, net.weight(1, patches, WIDTH, scale=0.5)), WIDTH, HEADS)
    x = net.norm(net.op("Mul", x, net.op("ReduceMean", x, axes=[1], keepdims=1)), WIDTH)
    classes = _unit(net, net.linear(x, WIDTH, WIDTH))
    queries = net.op("Unsqueeze", _unit(net, net.op("MatMul", texts, net.weight(WIDTH, WIDTH))), net.constant([0]))
    alike = net.op("Einsum", classes, queries, equation="bpd,bqd->bpq")
    one = net.constant(1, np.float32)
    scale = net.op("Add", net.op("Elu", net.linear(x, WIDTH, 1)), one)
    alike = net.op("Mul", net.op("Add", alike, net.linear(x, WIDTH, 1)), scale)
    first = net.op("Gather", "input_ids", net.constant(0), axis=1)
    there = net.op("Unsqueeze", net.op("Greater", first, net.constant(0)), net.constant([0, 1]))
    net.op("Where", there, alike, net.constant(-1e6, np.float32), name="logits")
    side = SIDE // PATCH
    steps = (np.arange(side) + 1) / side
    grid = np.stack([*np.meshgrid(steps, steps)], -1).reshape(-1, 2)
    bias = np.concatenate([np.log(grid / (1 - grid + 1e-4)), np.full_like(grid, -1)], -1)
    boxes = net.linear(net.gelu(net.linear(x, WIDTH, WIDTH)), WIDTH, 4)
    net.op("Sigmoid", net.op("Add", boxes, net.constant(bias, np.float32)), name="pred_boxes")
    inputs = [value(name, ["num_texts", "length"], INT64) for name in ("input_ids", "attention_mask")]
    outputs = [value("logits", ["batch_size", patches, "num_texts"]), value("pred_boxes", ["batch_size", patches, 4])]
    return net.model([*inputs, *PIXELS], outputs)
