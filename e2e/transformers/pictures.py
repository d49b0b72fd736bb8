"""Repositories of small models of pictures: captions, CLIP, matting, super-resolution."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from e2e.transformers import architectures as networks
from e2e.transformers.architectures import HEADS, PATCH, SIZE, WIDTH
from e2e.transformers.network import INT64, Dims, Network, value
from e2e.transformers.tokenizers import byte_pairs, clip_pairs
from e2e.transformers.writing import Json, write_repository

__all__ = ["image_processor", "write_pictures"]

SIDE = 32


def image_processor(kind: str, side: int, **more: Any) -> Json:
    """preprocessor_config.json: resized to `side` squared, scaled, normalised."""
    return {
        "image_processor_type": kind,
        "do_resize": True,
        "size": {"height": side, "width": side},
        "resample": 2,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.5, 0.4, 0.3],
        "image_std": [0.2, 0.25, 0.3],
        **more,
    }


def write_pictures(folder: Path) -> None:
    """`captions`, `clip`, `matting` and `sharper` below `folder`."""
    small = image_processor("ViTImageProcessor", SIDE)
    patches = (SIDE // PATCH) ** 2
    files, size = byte_pairs()
    decoder = {"model_type": "trocr", "decoder_layers": 1, "decoder_attention_heads": HEADS, "d_model": WIDTH}
    ends = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1, "decoder_start_token_id": 0}
    config: Json = {
        "model_type": "vision-encoder-decoder",
        "architectures": ["VisionEncoderDecoderModel"],
        "is_encoder_decoder": True,
        "encoder": {"model_type": "vit", "hidden_size": WIDTH},
        "decoder": {**decoder, "vocab_size": size},
        **ends,
    }
    own = {"config": config, "generation_config": ends, "preprocessor_config": small}
    models = {
        "encoder_model": networks.image_encoder(patches),
        "decoder_model_merged": networks.merged_decoder(size, masked=False, seed=31),
    }
    write_repository(folder / "captions", {**files, **own}, models)
    files, size = clip_pairs()
    config = {"model_type": "clip", "architectures": ["CLIPModel"], "projection_dim": WIDTH}
    processor = image_processor("CLIPFeatureExtractor", SIDE, do_center_crop=True, crop_size=SIDE)
    processor |= {"size": {"shortest_edge": SIDE}, "resample": 3}
    own = {"config": config, "preprocessor_config": processor}
    write_repository(folder / "clip", {**files, **own}, {"model": _clip(size, patches)})
    config = {"model_type": "modnet", "architectures": ["MODNet"]}
    matting = image_processor("ImageFeatureExtractor", SIDE, size={"shortest_edge": SIDE}, size_divisibility=8)
    own = {"config": config, "preprocessor_config": matting}
    write_repository(folder / "matting", own, {"model": _matting()})
    config = {"model_type": "swin2sr", "architectures": ["Swin2SRForImageSuperResolution"], "upscale": 2}
    pad = {"image_processor_type": "Swin2SRImageProcessor", "do_pad": True, "pad_size": 8}
    own = {"config": config, "preprocessor_config": {**pad, "do_rescale": True, "rescale_factor": 1 / 255}}
    write_repository(folder / "sharper", own, {"model": sharper()})


def _unit(net: Network, x: str) -> str:
    """Rows of length 1, as exporters write it: x / expand(norm)."""
    length = net.op("ReduceL2", x, axes=[-1], keepdims=1)
    return net.op("Div", x, net.op("Expand", length, net.op("Shape", x)))


def _clip_layer(net: Network, x: str, bias: str) -> str:
    """A layer whose activation is x σ(1.702 x)."""
    y = net.norm(x, WIDTH)
    q, k, v = (net.heads(net.linear(y, WIDTH, WIDTH), HEADS, SIZE) for _ in range(3))
    x = net.op("Add", x, net.linear(net.attend(q, k, v, SIZE, bias), WIDTH, WIDTH))
    inner = net.linear(net.norm(x, WIDTH), WIDTH, 2 * WIDTH)
    wave = net.op("Sigmoid", net.op("Mul", inner, net.constant(1.702, np.float32)))
    return net.op("Add", x, net.linear(net.op("Mul", inner, wave), 2 * WIDTH, WIDTH))


def _clip(vocabulary: int, patches: int) -> bytes:
    """logits_per_image [pictures, texts], its transpose, text_embeds and image_embeds.

    A text's row is where its largest id is, that of its end.
    """
    net = Network(32)
    words = net.op("Gather", net.weight(vocabulary, WIDTH, scale=1), "input_ids")
    zero, one = net.constant(0), net.constant(1)
    places = net.op("Range", zero, net.size("input_ids", 1), one)
    x = net.op("Add", words, net.op("Gather", net.weight(77, WIDTH, scale=0.5), places))
    x = net.norm(_clip_layer(net, x, net.causal_bias("attention_mask", "input_ids")), WIDTH)
    end = net.op("ArgMax", "input_ids", axis=1, keepdims=0)
    rows = net.op("Range", zero, net.size("input_ids", 0), one)
    last = net.constant([1])
    index = net.op("Concat", net.op("Unsqueeze", rows, last), net.op("Unsqueeze", end, last), axis=1)
    texts = _unit(net, net.op("MatMul", net.op("GatherND", x, index), net.weight(WIDTH, WIDTH)))
    y = net.norm(networks.vision_encoder(net, patches), WIDTH)
    pictures = _unit(net, net.op("MatMul", net.op("Gather", y, zero, axis=1), net.weight(WIDTH, WIDTH)))
    net.op("Identity", texts, name="text_embeds")
    net.op("Identity", pictures, name="image_embeds")
    scale = net.op("Exp", net.constant(2.0, np.float32))
    alike = net.op("Mul", net.op("MatMul", texts, net.op("Transpose", pictures, perm=[1, 0])), scale)
    net.op("Identity", alike, name="logits_per_text")
    net.op("Transpose", alike, perm=[1, 0], name="logits_per_image")
    inputs = [value(name, ["text_batch", "length"], INT64) for name in ("input_ids", "attention_mask")]
    outputs = [
        value("logits_per_image", ["image_batch", "text_batch"]),
        value("logits_per_text", ["text_batch", "image_batch"]),
        value("text_embeds", ["text_batch", WIDTH]),
        value("image_embeds", ["image_batch", WIDTH]),
    ]
    return net.model([*inputs, *networks.PIXELS], outputs)


def _matting() -> bytes:
    """output [b, 1, height, width], how much of each pixel is in front, of input [b, 3, height, width], as MODNet's.

    Halved twice, a gate of each channel, and back with the skipped branch, by sizes taken from the picture.
    """
    net = Network(33)
    half = net.op("Conv", "input", net.weight(8, 3, 3, 3, scale=0.3), strides=[2, 2], pads=[1, 1, 1, 1])
    half = net.op("Clip", half, net.constant(0, np.float32), net.constant(6, np.float32))
    deep = net.op("Conv", half, net.weight(8, 1, 3, 3, scale=0.4), strides=[2, 2], pads=[1, 1, 1, 1], group=8)
    deep = net.op("Relu", net.op("Conv", deep, net.weight(16, 8, 1, 1, scale=0.4)))
    gate = net.op("Conv", net.op("GlobalAveragePool", deep), net.weight(16, 16, 1, 1, scale=0.4))
    deep = net.op("Mul", deep, net.op("Sigmoid", gate))

    def grown(x: str, like: str) -> str:
        shape = net.op("Shape", like)
        sizes = net.op("Slice", shape, net.constant([2]), net.constant([4]), net.constant([0]))
        ends = net.op("Slice", net.op("Shape", x), net.constant([0]), net.constant([2]), net.constant([0]))
        goal = net.op("Concat", ends, sizes, axis=0)
        how: Json = {"coordinate_transformation_mode": "pytorch_half_pixel", "mode": "linear"}
        return net.op("Resize", x, "", "", goal, **how)

    x = net.op("Concat", grown(deep, half), half, axis=1)
    x = net.op("Conv", x, net.weight(8, 24, 3, 3, scale=0.1), pads=[1, 1, 1, 1])
    x = net.op("InstanceNormalization", x, net.constant(np.ones(8), np.float32), net.weight(8, scale=0.1), epsilon=1e-5)
    x = net.op("Concat", grown(net.op("Relu", x), "input"), "input", axis=1)
    net.op("Sigmoid", net.op("Conv", x, net.weight(1, 11, 1, 1, scale=0.8)), name="output")
    sides: Dims = ["batch_size", 3, "height", "width"]
    return net.model([value("input", sides)], [value("output", ["batch_size", 1, "height", "width"])])


WINDOW = 8


def _windows(net: Network, x: str, height: str, width: str) -> str:
    """[b, h, w, c] as windows [b h w / 64, 64, c]."""
    b, side, rest = net.constant([-1]), net.constant([WINDOW]), net.constant([WIDTH])
    rows, columns = (net.op("Div", size, side) for size in (height, width))
    x = net.op("Reshape", x, net.op("Concat", b, rows, side, columns, side, rest, axis=0))
    x = net.op("Transpose", x, perm=[0, 1, 3, 2, 4, 5])
    return net.op("Reshape", x, net.constant([-1, WINDOW * WINDOW, WIDTH]))


def _unwindowed(net: Network, x: str, height: str, width: str) -> str:
    """The inverse of `_windows`."""
    b, side, rest = net.constant([-1]), net.constant([WINDOW]), net.constant([WIDTH])
    rows, columns = (net.op("Div", size, side) for size in (height, width))
    x = net.op("Reshape", x, net.op("Concat", b, rows, columns, side, side, rest, axis=0))
    x = net.op("Transpose", x, perm=[0, 1, 3, 2, 4, 5])
    return net.op("Reshape", x, net.op("Concat", b, height, width, rest, axis=0))


def _rolled(net: Network, x: str, by: int) -> str:
    """Rows and columns moved by `by` places around the edge."""
    for axis in (1, 2):
        axes, at = net.constant([axis]), net.constant([-by])
        first = net.op("Slice", x, at, net.constant([2**62]), axes)
        x = net.op("Concat", first, net.op("Slice", x, net.constant([0]), at, axes), axis=axis)
    return x


def sharper() -> bytes:
    """reconstruction [b, 3, 2 height, 2 width] of pixel_values, as Swin2SR.

    Two layers of attention by cosine within windows, the second's moved by half a window, then pixels out of channels.
    """
    net = Network(34)
    height, width = (net.op("Unsqueeze", net.size("pixel_values", axis), net.constant([0])) for axis in (2, 3))
    first = net.op("Conv", "pixel_values", net.weight(WIDTH, 3, 3, 3, scale=0.3), pads=[1, 1, 1, 1])
    x = net.op("Transpose", first, perm=[0, 2, 3, 1])
    for moved in (0, WINDOW // 2):
        y = _windows(net, _rolled(net, x, -moved) if moved else x, height, width)
        q, k, v = (net.heads(net.linear(y, WIDTH, WIDTH), HEADS, SIZE) for _ in range(3))
        q, k = (_unit(net, part) for part in (q, k))
        bias = net.weight(1, HEADS, WINDOW**2, WINDOW**2, scale=1)
        y = net.norm(net.linear(net.attend(q, k, v, SIZE, bias), WIDTH, WIDTH), WIDTH)
        y = _unwindowed(net, y, height, width)
        x = net.op("Add", x, _rolled(net, y, moved) if moved else y)
        x = net.op("Add", x, net.norm(net.linear(net.gelu(net.linear(x, WIDTH, 64)), 64, WIDTH), WIDTH))
    x = net.op("Add", net.op("Transpose", x, perm=[0, 3, 1, 2]), first)
    x = net.op("Conv", x, net.weight(12, WIDTH, 3, 3, scale=0.004), pads=[1, 1, 1, 1])
    x = net.op("DepthToSpace", x, blocksize=2, mode="CRD")
    net.op("Add", x, net.constant(0.5, np.float32), name="reconstruction")
    return net.model(networks.PIXELS, [value("reconstruction", ["batch_size", 3, "high", "wide"])])
