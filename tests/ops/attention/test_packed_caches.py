"""GroupQueryAttention with caches of packed rows, on NumPy and on the desktop's GPU.

The oracle of new rows is onnxruntime with caches of float32; the oracle of results is attention over what a cache says.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pyruntime.errors import InvalidGraph
from pyruntime.ir import Array
from pyruntime.ops.microsoft.attention.group_query_attention import GroupQueryAttention
from pyruntime.ops.microsoft.attention.packed_rows import pack_rows, unpack_rows
from pyruntime.ops.registry import op_class
from tests.contrib.families.group_query_attention import reference
from tests.desktop import DesktopGpu
from tests.harness import run_op, typed
from tests.sampling import matrix

HEADS, GROUPS = 4, 2
CAPACITY = 40


def rows_of(cache: Array, bits: int) -> tuple[Array, Array]:
    """The numbers of packed rows and how far they may be off, read byte by byte."""
    codes, coding = cache[..., :-4].astype(np.int64), cache[..., -4:].astype(np.uint32)
    if bits == 4:
        codes = np.stack((codes % 16, codes // 16), axis=-1).reshape(*codes.shape[:-1], -1)
    step, low = (
        ((coding[..., 2 * i + 1] << 24) | (coding[..., 2 * i] << 16)).astype(np.uint32).view(np.float32)[..., None]
        for i in range(2)
    )
    return (low + step * codes.astype(np.float32)).astype(np.float32), step / 2


FORMS: dict[str, dict[str, Any]] = {
    "first prompt": {"queries": 19, "past": 0},
    "long prompt in place": {"queries": 33, "past": 7},
    "chunk in place": {"queries": 5, "past": 7},
    "token in place": {"queries": 1, "past": 33},
    "tokens of two texts": {"queries": 1, "past": 33, "batch": 2},
    "token that grows": {"queries": 1, "past": 33, "in_place": False},
    "plain": {"queries": 3, "past": 7, "turned": False},
    "norms": {"queries": 3, "past": 7, "norm": True},
    "two epsilons": {"queries": 3, "past": 7, "norm": True, "epsilons": {"q_norm_epsilon": 0.5}},
    "token, norms": {"queries": 1, "past": 33, "norm": True},
}


def case(form: dict[str, Any], size: int, bits: int, kind: str, packed: bool) -> tuple[Any, Any, list[Any], list[Any]]:
    """The operators with packed and with float caches, and their inputs."""
    rng = np.random.default_rng(size + bits)
    batch, queries, past = form.get("batch", 1), form["queries"], form["past"]
    in_place = form.get("in_place", True) and past > 0
    widths = (8 * size,) if packed else (4 * size, 2 * size, 2 * size)
    fresh = [rng.normal(size=(batch, queries, w)).astype(kind) for w in widths] + [None] * (3 - len(widths))
    floats = [rng.normal(size=(batch, GROUPS, past, size)).astype(np.float32) + 1 for _ in "kv"]
    make: Any = op_class("GroupQueryAttention", "com.microsoft", 1)
    attributes: dict[str, Any] = {
        "num_heads": HEADS,
        "kv_num_heads": GROUPS,
        "do_rotary": int(form.get("turned", True)),
    }
    attributes |= {"qk_norm_epsilon": 0.01, **form.get("epsilons", {})}
    quantised = {"k_quant_type": "PER_ROW", "v_quant_type": "PER_ROW", "kv_cache_bit_width": bits}
    rows = [rng.integers(0, 256, (batch, GROUPS, CAPACITY, size * bits // 8 + 4)).astype(np.uint8) for _ in "kv"]
    for x in rows:
        x[..., -4:] = np.array([1e3, -1e4], np.float32).view(np.uint8).reshape(2, 4)[:, 2:].reshape(-1)  # rows not read
    if past:
        first = make(num_heads=HEADS, kv_num_heads=GROUPS, **quantised, present=(True,) * 3)
        q = np.zeros((batch, past, HEADS * size), np.float32)
        flat = [x.swapaxes(1, 2).reshape(batch, past, -1) for x in floats]
        _, *old = run_op(first, [q, *flat, None, None, np.full(batch, past - 1, np.int32), np.array([past], np.int32)])
        for x, y in zip(rows, old, strict=True):
            x[:, :, :past] = y
        floats = [rows_of(y, bits)[0].astype(kind) for y in old]
    else:
        rows = [x[:, :, :0] for x in rows]
    if past and not in_place:
        rows = [x[:, :, :past] for x in rows]
    angles = rng.uniform(-3, 3, (64, size // 2))
    tables = [t.astype(kind) if attributes["do_rotary"] else None for t in (np.cos(angles), np.sin(angles))]
    norms = [rng.normal(size=size).astype(kind) for _ in "qk"] if form.get("norm") else [None, None]
    lengths = np.full(batch, past + queries - 1, np.int32)
    if batch > 1:
        lengths[1] -= 9
    others = [lengths, np.array([past + queries], np.int32), *tables, *[None] * 5, *norms]
    name, domain = ("GroupQueryAttentionInPlace", "pyruntime") if in_place else ("GroupQueryAttention", "com.microsoft")
    op = op_class(name, domain, 1)(**attributes, **quantised, present=(True,) * 3)
    return op, attributes, [*fresh, *rows, *others], [*fresh, *floats, *others]


@pytest.mark.parametrize("kernels", ["numpy", "gpu", "software"])
@pytest.mark.parametrize(
    ("form", "size", "bits", "kind", "packed"),
    matrix(list(FORMS), [16, 48, 128], [8, 4], ["float32", "float16"], [True, False]),
)
def test_packed_rows__any_form__hold_the_new_rows_and_are_attended_to(
    form: str, size: int, bits: int, kind: str, packed: bool, kernels: str, desktop_gpu: None
) -> None:
    op, attributes, inputs, floats = case(FORMS[form], size, bits, kind, packed)
    gpu: Any = None
    if kernels != "numpy":
        gpu = copy.copy(DesktopGpu())
        disabled = {"software"} if kernels == "gpu" else set[str]()
        gpu.target = replace(gpu.target, disabled=gpu.target.disabled | disabled)
    y, *caches = run_op(op, inputs, gpu)
    _, *expected, _ = reference(attributes, *floats)
    ends, total = inputs[5] + 1, int(inputs[6][0])
    made = []
    for cache, wanted, before in zip(caches, expected, inputs[3:5], strict=True):
        found, error = rows_of(cache, bits)
        for b, end in enumerate(ends):
            start = end - FORMS[form]["queries"]
            new = np.abs(found[b, :, start:end] - wanted[b, :, start:end])
            assert (new <= error[b, :, start:end] * 1.001 + (4e-3 if kind == "float16" else 4e-5)).all()
            np.testing.assert_array_equal(cache[b, :, :start], before[b, :, :start])
        made.append(found[:, :, :total])
    # Attention over another layer's cache: what this one says.
    query, nothing = inputs[0][..., : HEADS * size], inputs[0][:, :0, : GROUPS * size]
    want = reference(attributes, query, nothing, nothing, *made, *inputs[5:])[0]
    tolerance = 5e-3 if kind == "float16" else 1e-4
    np.testing.assert_allclose(y, want, tolerance, tolerance)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"v_quant_type": "NONE"}, "neither"),
        ({"sliding_window_cache": 1, "local_window_size": 4}, "sliding_window_cache"),
    ],
)
def test_packed_rows__attributes_that_do_not_fit__invalid_graph(attributes: dict[str, Any], message: str) -> None:
    _, given, inputs, _ = case(FORMS["chunk in place"], 16, 8, "float32", True)
    own = {"k_quant_type": "PER_ROW", "v_quant_type": "PER_ROW", "kv_cache_bit_width": 8, **given, **attributes}
    with pytest.raises(InvalidGraph, match=message):
        GroupQueryAttention(**own, present=(True,) * 3).infer(*(typed(x) for x in inputs))


@pytest.mark.parametrize("bits", [8, 4])
def test_packed_rows__numbers_of_any_size__are_off_by_half_a_step(bits: int) -> None:
    rng = np.random.default_rng(bits)
    x = rng.normal(size=(400, 32)) * 10.0 ** rng.uniform(-30, 30, (400, 1)) + rng.choice([-100, 0, 1], (400, 1))
    x[0], x[1] = 0, 3.14159
    x = x.astype(np.float32)
    rows = pack_rows(x, bits)
    found, error = rows_of(rows, bits)
    assert rows.shape == (400, 32 * bits // 8 + 4)
    span = x.max(axis=1, keepdims=True) - x.min(axis=1, keepdims=True)
    largest = (span + np.abs(x).max(axis=1, keepdims=True) / 128) / (2**bits - 1) * (1 + 1 / 128) / 2
    assert (error <= largest).all()
    assert (np.abs(found - x) <= error * 1.0001 + np.abs(x) * 1e-6).all()
    np.testing.assert_array_equal(unpack_rows(rows, bits), found)
