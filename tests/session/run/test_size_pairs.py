"""Plans for one size and then another, in both orders, of every model here that takes several.

PYRUNTIME_VERIFY is on in tests: memory is proved. The bytes of each operand and the numbers that follow from sizes are
compared with NumPy's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

from pyruntime.kernels import Limits, Target
from tests import cache_models, open_models
from tests.open_graphs import STEPS, graph_of
from tests.open_models import Writer, decoder_feeds, encoder_feeds, listener_feeds, picture_feeds
from tests.quantized import models as quantized
from tests.sized_plans import disagreements

Feeds: TypeAlias = dict[str, Any]
Sized: TypeAlias = tuple[Callable[[], bytes], Callable[[int], Feeds], tuple[int, ...]]

TARGETS = {
    "default": Target(),
    "desktop": Target(
        Limits(storage_buffers=10, workgroup_bytes=49152, invocations=1024, workgroup_x=1024), vendor="nvidia"
    ),
}
F = open_models.F


def strided(kernel: int, stride: int, channels: int, strides: tuple[int, ...] = (1, 2, 2, 1)) -> bytes:
    """x: [batch, samples] -> y, as the encoder of a voice detector: convolutions that divide the length."""
    w = Writer(9)
    x = w.add("Conv", w.add("Unsqueeze", "x", w.ints(1)), w.weight(channels, 1, kernel), strides=[stride])
    for by in strides:
        x = w.add("Conv", x, w.weight(channels, channels, 3), w.weight(channels), strides=[by], pads=[1, 1])
        x = w.add("Relu", x)
    w.add("Identity", x, out="y")
    return w.model({"x": (F, ["batch", "samples"])}, ["y"])


def pooled(op: str) -> bytes:
    """x: [batch, samples] -> y: windows that divide the length, and what is compared with 1 after each."""
    w = Writer(10)
    x = w.add("Unsqueeze", "x", w.ints(1))
    for kernel, stride in ((4, 4), (3, 2), (2, 2)):
        x = w.add(op, x, kernel_shape=[kernel], strides=[stride], pads=[kernel - 1, 0])
        x = w.add("Add", x, w.add("ReduceMean", x, axes=[2], keepdims=1))
    w.add("Mul", x, w.weight(2, 1), out="y")
    return w.model({"x": (F, ["batch", "samples"])}, ["y"])


def counted() -> bytes:
    """x: [rows, 4] -> y = x (rows + max(rows, 5)): arithmetic whose second operand compares what the first has."""
    w = Writer(11)
    rows = w.size("x", 0)
    w.add("Mul", "x", w.add("Cast", w.add("Add", rows, w.add("Max", rows, w.ints(5))), to=F), out="y")
    return w.model({"x": (F, ["rows", 4])}, ["y"])


def padded() -> bytes:
    """x: [rows, 4] -> y = x · (0 + rows + 4 + 0): sizes are padded, by the nothing of numbers."""
    w = Writer(12)
    total = w.add("ReduceSum", w.add("Pad", w.add("Shape", "x"), w.ints(1, 1)), keepdims=0)
    w.add("Mul", "x", w.add("Cast", total, to=F), out="y")
    return w.model({"x": (F, ["rows", 4])}, ["y"])


def signal(samples: int) -> Feeds:
    return {"x": np.random.default_rng(samples).normal(size=(1, samples)).astype(np.float32)}


def table(rows: int) -> Feeds:
    return {"x": np.random.default_rng(rows).normal(size=(rows, 4)).astype(np.float32)}


PICTURES = 16, 24, 61
SAMPLES = 320, 512, 640, 1024

MODELS: dict[str, Sized] = {
    "encoder": (open_models.encoder, lambda n: encoder_feeds(1, n), (1, 2, 17)),
    "encoder of batches": (open_models.encoder, lambda n: encoder_feeds(n, 3), (1, 2, 3)),
    "listener": (open_models.listener, lambda n: listener_feeds(1, n), (1, 2, 17)),
    "decoder": (open_models.decoder, lambda n: decoder_feeds(1, n, 2), (1, 2, 7)),
    "decoder after others": (open_models.decoder, lambda n: decoder_feeds(1, 1, n), (0, 1, 7)),
    "convolutions": (open_models.convolutions, lambda n: picture_feeds(1, n, n), PICTURES),
    "convolutions of a height": (open_models.convolutions, lambda n: picture_feeds(2, n, 32), PICTURES),
    "mixed layouts": (open_models.mixed_layouts, lambda n: picture_feeds(1, n, n), PICTURES),
    "unet": (open_models.unet, lambda n: picture_feeds(1, n, 2 * n), (16, 24, 32)),
    "unet, by sizes": (lambda: open_models.unet("linear", by_sizes=True), lambda n: picture_feeds(1, n, 30), PICTURES),
    "sizes by float": (lambda: open_models.by_float(5), lambda n: picture_feeds(1, n, n), PICTURES),
    "positions": (open_models.positions, table, (1, 2, 3, 17)),
    "fourier": (open_models.fourier, lambda n: signal(n), (2, 8, 9)),
    "needs a number": (open_models.needs_number, table, (2, 3, 4)),
    "voice, 16 kHz": (lambda: strided(256, 128, 64), signal, SAMPLES),
    "voice, 8 kHz": (lambda: strided(128, 64, 64), signal, SAMPLES),
    "voice, few channels": (lambda: strided(128, 64, 8), signal, SAMPLES),
    "voice, short": (lambda: strided(4, 4, 8), signal, (16, 24, 32, 64)),
    "voice, three halvings": (lambda: strided(8, 4, 4, (2, 2, 2)), signal, (8, 16, 40, 64)),
    "largest of windows": (lambda: pooled("MaxPool"), signal, (4, 9, 16, 31)),
    "means of windows": (lambda: pooled("AveragePool"), signal, (4, 9, 16, 31)),
    "counted": (counted, table, (3, 4, 6, 7)),
    "padded": (padded, table, (2, 3, 5)),
    "quantized encoder": (
        lambda: quantized.dynamic(quantized.encoder(1, 32, 2)).SerializeToString(),
        lambda n: {"ids": np.zeros((1, n), np.int64)},
        (1, 5, 40),
    ),
    "quantized listener": (
        lambda: quantized.dynamic(quantized.listener(8, 16)).SerializeToString(),
        lambda n: {"x": np.random.default_rng(n).random((1, 8, n), np.float32)},
        (2, 5, 40),
    ),
    "packed": (
        lambda: quantized.packed(256).SerializeToString(),
        lambda n: {"x": np.random.default_rng(n).random((n, 256), np.float32)},
        (1, 3, 64),
    ),
}
MODELS |= {
    f"cache, {name}": (lambda c=c: c.model, lambda n, c=c: c.empty(1) | c.feeds(1, n, 0), (1, 2, 5))  # type: ignore[misc]
    for name, c in cache_models.CACHED.items()
}
MODELS |= {
    f"step, {op} {number}": (
        lambda op=op, how=how: graph_of([(op, how), ("Slice", {"axis": 1, "step": 2}), (op, how)]),  # type: ignore[misc]
        lambda n: {"x": np.random.default_rng(n).normal(size=(n, 2 * n + 1, 3)).astype(np.float32)},
        (1, 2, 5),
    )
    for op, hows in STEPS.items()
    for number, how in enumerate(hows)
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MODELS)
def test_plans__of_pairs_of_sizes_in_both_orders__have_the_sizes_of_numpy(name: str, target: str) -> None:
    model, feeds, sizes = MODELS[name]
    made = model()
    found: list[str] = []
    for pair in itertools.permutations(sizes, 2):
        runs = [feeds(n) for n in (*pair, *(n for n in sizes if n not in pair))]
        found += disagreements(made, runs, TARGETS[target])
    assert found == []
