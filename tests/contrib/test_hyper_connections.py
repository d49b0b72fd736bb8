"""Hyper-connections and n-gram hashes: what is refused, dispatches, chunks of a sequence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.errors import InvalidGraph
from pyruntime.ir import Array, DType, TensorType
from pyruntime.ir.symbolic.sizes import Sizes
from pyruntime.kernels import Target
from pyruntime.ops.registry import op_class
from tests.harness import run_op

MS = "com.microsoft"


def made(op_type: str, outputs: int = 1, **attributes: Any) -> Any:
    return op_class(op_type, MS, 1)(**attributes, present=(True,) * outputs)


def f32(*shape: int) -> Array:
    return np.ones(shape, np.float32)


REFUSED: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("HyperConnectionPreMix", [f32(8), f32(8)], {}, "streams"),
    ("HyperConnectionPreMix", [f32(3, 21), f32(3, 4)], {"num_branches": 4}, "of 4 branches"),
    ("HyperConnectionPreMix", [f32(3, 20), f32(3, 4)], {"num_branches": -4}, "num_branches >= 0"),
    ("HyperConnectionPreMix", [f32(3, 4, 8), f32(1, 4)], {}, "gates of one of the shapes"),
    ("HyperConnectionPreMix", [f32(3, 4, 8), f32(3, 32)], {}, "gates of one of the shapes"),
    ("HyperConnectionPreMix", [f32(2, 0, 4), f32(2, 0)], {}, "neither of them 0"),
    ("HyperConnectionPostMix", [f32(3, 32), f32(3, 8), f32(3, 32)], {"num_branches": 4}, "gates of one of the shapes"),
    ("HyperConnectionPostMix", [f32(3, 4, 8), f32(8), f32(3, 4)], {}, "output of a block"),
    ("HyperConnectionPostMix", [f32(3, 4, 8), f32(3, 8), f32(3, 4), f32(4, 4)], {}, "matrix of streams"),
    ("BranchwiseRMSNorm", [f32(3, 4, 8), f32(4, 1)], {}, "a scale"),
    ("BranchwiseRMSNorm", [f32(3, 4, 8).astype(np.float64)], {}, "float32, float16 or bfloat16"),
    ("EngramGate", [f32(2, 3, 4, 5), f32(2, 3, 4, 5), f32(2, 3, 5), f32(5), f32(5)], {}, "scales"),
    ("EngramGate", [f32(2, 3, 4, 5), f32(2, 3, 4, 5), f32(2, 3, 4), f32(4, 5), f32(4, 5)], {}, "a value"),
    ("NGramRepeatBlock", [np.zeros((1, 3), np.int64), f32(1, 4)], {"ngram_size": 0}, "ngram_size >= 1"),
    ("NGramRepeatBlock", [np.full((1, 3), 9), f32(1, 4)], {"ngram_size": 1}, "tokens from 0 to 3"),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes", "message"), REFUSED)
def test_inputs_that_do_not_fit__are_refused(op_type: str, inputs: Any, attributes: Any, message: str) -> None:
    with pytest.raises(InvalidGraph, match=f"{op_type}: expected .*{message}"):
        run_op(made(op_type, **attributes), inputs)


def test_engram_gate__second_output_without_its_scale__is_refused() -> None:
    inputs: list[Any] = [f32(1, 2, 3, 4), f32(1, 2, 3, 4), f32(1, 2, 4), f32(3, 4), f32(3, 4)]
    with pytest.raises(InvalidGraph, match="conv_norm_scale"):
        run_op(made("EngramGate", 2), inputs)


@pytest.mark.parametrize("shape", [(8,), (4, 8), (32,), None])
@pytest.mark.parametrize(("dtype", "scale"), [(DType.FLOAT16, DType.FLOAT), (DType.FLOAT, DType.FLOAT)])
def test_branchwise_rms_norm__any_scale__is_one_dispatch(shape: Any, dtype: DType, scale: DType) -> None:
    x = TensorType(dtype, (3, 4, 8))
    gain = [TensorType(scale, shape)] if shape else []
    assert len(made("BranchwiseRMSNorm").lower(Target(), x, *gain)) == 1


OPEN: list[tuple[str, int, list[tuple[int, ...]], dict[str, Any]]] = [
    ("HyperConnectionPreMix", 1, [(4, 8), (4,)], {}),
    ("HyperConnectionPreMix", 1, [(32,), (32,)], {"num_branches": 4}),
    ("HyperConnectionPostMix", 1, [(4, 8), (8,), (4, 1), (4, 4)], {}),
    ("HyperConnectionPostMix", 1, [(32,), (8,), (4, 8)], {"num_branches": 4}),
    ("BranchwiseRMSNorm", 1, [(4, 8)], {}),
]


@pytest.mark.parametrize(("op_type", "outputs", "shapes", "attributes"), OPEN)
def test_lower__batch_and_length_open__holds_for_all(op_type: str, outputs: int, shapes: Any, attributes: Any) -> None:
    sizes = Sizes()
    lead = tuple(sizes.add(name, value, 1, 1000) for name, value in (("b", 2), ("l", 3)))
    fixed = 1 if op_type == "BranchwiseRMSNorm" else 0
    types = [TensorType(DType.FLOAT, (*lead, *shape)) for shape in shapes]
    types += [TensorType(DType.FLOAT, (4, 8))] * fixed
    (dispatch,) = made(op_type, outputs, **attributes).lower(Target(), *types)
    assert dispatch.params
    assert not sizes.specialized(), sizes.specialized()
    assert sizes.hold((7, 500))


def test_engram_gate__batch_and_length_open__is_written_for_all() -> None:
    sizes = Sizes()
    lead = tuple(sizes.add(name, value, 1, 1000) for name, value in (("b", 2), ("l", 3)))
    types = [TensorType(DType.FLOAT, (*lead, *shape)) for shape in ((4, 8), (4, 8), (8,))]
    made("EngramGate", 2).infer(*types, *[TensorType(DType.FLOAT, (4, 8))] * 3)
    assert not sizes.specialized(), sizes.specialized()


TABLE = [np.array([3, 5, -7, 11], np.int64), np.array([97, 89, 83, 79, 73, 71], np.int64)]
NGRAMS: dict[str, Any] = {"max_ngram_size": 4, "n_head_per_ngram": 2, "pad_id": 1}


@pytest.mark.parametrize("eos", [None, np.array(7)])
@pytest.mark.parametrize("cut", [1, 2, 5])
def test_n_gram_hashes__in_chunks__are_those_of_the_whole(cut: int, eos: Array | None) -> None:
    ids = np.random.default_rng(0).integers(5, 9, (2, 11))
    op = made("NGramHashMapping", 2, **NGRAMS, reset_on_eos=1)
    whole, last = run_op(op, [ids, *TABLE, None, None, eos])
    first, past = run_op(op, [ids[:, :cut], *TABLE, None, None, eos])
    second, end = run_op(op, [ids[:, cut:], *TABLE, past, None, eos])
    np.testing.assert_array_equal(np.concatenate([first, second], 1), whole)
    np.testing.assert_array_equal(end, last)


def test_n_gram_hashes__packed__are_those_of_each_sequence() -> None:
    rng = np.random.default_rng(1)
    parts = [rng.integers(5, 9, n) for n in (1, 6, 3)]
    ends = np.array([0, 1, 7, 10], np.int32)
    op = made("VarlenNGramHashMapping", 4, **NGRAMS, reset_on_eos=1, state_update_capacity=2)
    counts, segments = np.array([5, 1, -1], np.int32), np.zeros(10, np.int32)
    inputs = [np.concatenate(parts), *TABLE, ends, None, None, np.array(7), segments, None, counts]
    hashes, present, _, states = run_op(op, inputs)
    alone = made("NGramHashMapping", 2, **NGRAMS, reset_on_eos=1)
    for i, part in enumerate(parts):
        y, last = run_op(alone, [part[None], *TABLE, None, None, np.array(7)])
        np.testing.assert_array_equal(hashes[ends[i] : ends[i + 1]], y[0])
        np.testing.assert_array_equal(present[i], last[0])
    np.testing.assert_array_equal(states[0], [[7, 7, parts[0][0]], [1, 1, 1]])
    np.testing.assert_array_equal(states[1], [[7, 7, parts[1][0]], [1, 1, 1]])
    np.testing.assert_array_equal(states[2], np.ones((2, 3)))


BAD: list[tuple[str, dict[int, Any], str]] = [
    ("NGramHashMapping", {1: np.array([1, 2])}, "at least 4 multipliers"),
    ("NGramHashMapping", {2: np.zeros(6, np.int64)}, "vocab_sizes > 0"),
    ("NGramHashMapping", {3: np.zeros((1, 3), np.int64)}, "past_ids"),
    ("NGramHashMapping", {4: np.full(6, -1)}, "head_offsets from 0"),
    ("NGramHashMapping", {4: np.full(6, np.iinfo(np.int64).max)}, "head_offsets from 0"),
    ("NGramHashMapping", {5: np.array([7])}, "a scalar"),
    ("NGramHashMapping", {6: np.zeros((2, 5), np.int32)}, "int32 segment_ids"),
    ("VarlenNGramHashMapping", {3: np.array([0, 0, 5], np.int32)}, "each more than the last"),
    ("VarlenNGramHashMapping", {3: np.array([0, 2, 4], np.int32)}, "from 0 to 5"),
    ("VarlenNGramHashMapping", {8: np.zeros((2, 3), np.int32)}, "segment_ids with"),
    ("VarlenNGramHashMapping", {9: np.zeros(2, np.int32)}, "state_update_capacity"),
]


@pytest.mark.parametrize(("op_type", "changes", "message"), BAD)
def test_n_gram_inputs_that_do_not_fit__are_refused(op_type: str, changes: dict[int, Any], message: str) -> None:
    packed = op_type.startswith("Varlen")
    inputs: list[Any] = [np.arange(5) if packed else np.arange(8).reshape(2, 4), *TABLE, *[None] * 7]
    if packed:
        inputs[3] = np.array([0, 2, 5], np.int32)
    for place, value in changes.items():
        inputs[place] = value
    with pytest.raises(InvalidGraph, match=message):
        run_op(made(op_type, **NGRAMS), inputs if packed else inputs[:7])
