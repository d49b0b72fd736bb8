"""Photographs, and pages and lines of text, normalized as networks expect."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from tools.zoo.trained.recipes.context import Context

__all__ = ["SCALES", "VALUES", "line", "page", "photo"]

Array = np.ndarray[Any, Any]

WORDS = (
    "Invoice No. 20417",
    "Total amount due:",
    "1,284.50 EUR",
    "The quick brown fox",
    "jumps over",
    "Table 3: results",
)

SCALES: Mapping[str, Callable[[Array], Array]] = {
    "bytes": lambda x: x,
    "unit": lambda x: x / 255,
    "signed": lambda x: x / 127.5 - 1,
    "centred": lambda x: x - 127.5,
    "half": lambda x: x / 255 - 0.5,
    "imagenet": lambda x: (x / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225],
    "table": lambda x: (x[..., ::-1] / 255 - [0.408, 0.447, 0.470]) / [0.289, 0.274, 0.278],
    "caffe": lambda x: x[..., ::-1] - [104.0, 117.0, 123.0],
    "isnet": lambda x: (x - 128) / 256,
}
"""From RGB of 0 to 255 to what a network expects, the last axis being the colours."""


@functools.lru_cache
def photographs() -> list[Array]:
    """Return scikit-learn's two photographs, [427, 640, 3] in 0 to 255."""
    from sklearn.datasets import load_sample_images

    return [np.asarray(image) for image in load_sample_images().images]


def cut(number: int, height: int, width: int, random: np.random.Generator) -> Array:
    """Return a part of a photograph, resized."""
    whole = photographs()[number % 2]
    side = int(random.integers(200, 400))
    top, left = int(random.integers(0, whole.shape[0] - side)), int(random.integers(0, whole.shape[1] - side))
    image = Image.fromarray(whole[top : top + side, left : left + side])
    return np.asarray(image.resize((width, height), Image.Resampling.BILINEAR), np.float32)


def written(height: int, width: int, random: np.random.Generator, single: bool) -> Array:
    """Return a page with lines of text, or one line that fills the image."""
    image = Image.new("RGB", (width, height), (248, 246, 240))
    draw = ImageDraw.Draw(image)
    size = height * 0.7 if single else max(12, height / 16)
    font = ImageFont.load_default(size=size)
    if single:
        text = " ".join(WORDS[i] for i in random.permutation(len(WORDS)))
        draw.text((2, height * 0.08), text, fill=(20, 20, 30), font=font)
    else:
        top = size
        while top < height - 2 * size:
            draw.text((width * 0.08, top), WORDS[int(random.integers(len(WORDS)))], fill=(20, 20, 30), font=font)
            draw.line([(width * 0.05, top - 3), (width * 0.95, top - 3)], fill=(90, 90, 90))
            top += size * 2
    noise = random.normal(0, 3, (height, width, 1))
    return np.clip(np.asarray(image, np.float32) + noise, 0, 255)


def normalised(context: Context, drawn: Callable[..., Array], scale: str, layout: str) -> Array:
    """Return a batch of images, NCHW or NHWC; grey with one channel."""
    channels_last = layout == "nhwc"
    height, width = context.shape[1:3] if channels_last else context.shape[2:4]
    channels = context.shape[3] if channels_last else context.shape[1]
    made = np.stack([drawn(number, height, width, context.random) for number in range(context.shape[0])])
    if channels == 1:
        made = SCALES[scale]((made @ [0.299, 0.587, 0.114])[..., None])
    else:
        made = SCALES[scale](made)
    return np.ascontiguousarray(made if channels_last else made.transpose(0, 3, 1, 2), np.float32)


def photo(context: Context, scale: str = "unit", layout: str = "nchw") -> Array:
    """Parts of photographs."""
    return normalised(context, cut, scale, layout)


def page(context: Context, scale: str = "unit", layout: str = "nchw") -> Array:
    """Pages with lines of text."""
    return normalised(context, lambda _, h, w, random: written(h, w, random, False), scale, layout)


def line(context: Context, scale: str = "unit", layout: str = "nchw") -> Array:
    """A line of text."""
    return normalised(context, lambda _, h, w, random: written(h, w, random, True), scale, layout)


VALUES: Mapping[str, Any] = {"photo": photo, "page": page, "line": line}
