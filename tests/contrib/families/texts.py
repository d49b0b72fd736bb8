"""Texts cut into words, and hashed: what sklearn-onnx writes for its vectorizers."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array
from tests.contrib.case import Case, Draw
from tests.contrib.drawing import chance, pick, shape_of

_PIECES = ("the", "Cat", "don't", "\u00dcber", "a", "e-mail", "foo_bar", " ", "  ", ", ", "!", ".", "2nd", "\u732b", "")
_EXPRESSIONS = ("[a-zA-Z0-9_]+", r"\w+", ".", "[^ ,]+", "a|ab+", "o{1,2}?", r"\b\w", "x*", "(?i)CAT", r"\pL+")
_SEPARATORS = (" ", ",", "!", r"\.", "[ ,]+", "a", "o?", r"\s+", "the|a")


def _texts(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    texts = ["".join(rng.choice(_PIECES, rng.integers(0, 8))) for _ in range(int(np.prod(shape)))]
    return np.array(texts, object).reshape(shape)


def draw_tokenizer(rng: np.random.Generator) -> Case:
    attributes = {"mark": int(chance(rng)), "pad_value": pick(rng, "#", "", "pad"), "mincharnum": 1}
    how = int(rng.integers(0, 3))
    if how == 0:
        attributes["separators"] = [""]
    elif how == 1:
        attributes["separators"] = [pick(rng, *_SEPARATORS) for _ in range(int(rng.integers(1, 4)))]
    else:
        attributes["tokenexp"] = pick(rng, *_EXPRESSIONS)
    if how and attributes.get("tokenexp") != ".":
        attributes["mincharnum"] = int(rng.integers(1, 4))
    texts = _texts(rng, shape_of(rng, 1, 2))
    return Case("Tokenizer", [texts], 1, attributes, host=True, needed=(0,))


def draw_murmur_hash3(rng: np.random.Generator) -> Case:
    shape = shape_of(rng, 0, 3)
    dtype = pick(rng, None, None, np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64)
    x = _texts(rng, shape) if dtype is None else np.asarray(rng.integers(0, 1 << 31, shape)).astype(dtype)
    attributes = {"positive": int(chance(rng)), "seed": int(rng.integers(0, 1 << 31))}
    return Case("MurmurHash3", [x], 1, attributes, host=True)


DRAWS: dict[str, Draw] = {"Tokenizer": draw_tokenizer, "MurmurHash3": draw_murmur_hash3}
