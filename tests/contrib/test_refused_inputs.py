"""Inputs of com.microsoft operators that onnxruntime's CPU provider refuses are refused with what was expected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.errors import InvalidGraph, RuntimeException
from pyruntime.ir import Array, DType, TensorType
from pyruntime.ops.microsoft.attention.mrotary_embedding import MRotaryEmbedding
from pyruntime.ops.microsoft.dynamic_time_warping import DynamicTimeWarping
from pyruntime.ops.microsoft.unfold_tensor import UnfoldTensor
from tests.contrib.case import Case, op_of
from tests.harness import run_op

Changes = dict[int, Any]


def f32(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def i32(*numbers: Any) -> Array:
    return np.array(numbers, np.int32)


def decoder(changes: Changes, **attributes: Any) -> Case:
    """Two beams over shared buffers of 5 rows, of which 3 are past."""
    beams = np.zeros((2, 2, 5), np.int32)
    row, cache = f32(4, 1, 16), f32(4, 2, 5, 8)
    inputs: list[Any] = [row, row, row, None, None, cache, cache, i32(3), i32(2), beams, None]
    given = [changes.get(i, x) for i, x in enumerate(inputs)]
    kept = {"num_heads": 2, "past_present_share_buffer": 1, **attributes}
    return Case("DecoderMaskedMultiHeadAttention", given, 3, kept)


def sparse(changes: Changes, **attributes: Any) -> Case:
    """One layout of two blocks of 16, one token after 20."""
    row, cache = f32(2, 1, 32), f32(2, 2, 32, 16)
    inputs: list[Any] = [row, row, row, cache, cache, i32([0, 1, 3]), i32([0, 0, 1]), i32(21), i32(21, 21)]
    given = [changes.get(i, x) for i, x in enumerate(inputs)]
    return Case("SparseAttention", given, 3, {"num_heads": 2, "kv_num_heads": 2, "sparse_block_size": 16, **attributes})


def crop(changes: Changes, **attributes: Any) -> Case:
    inputs: list[Any] = [f32(2, 1, 4, 4), f32(1, 4), i32(1), i32(2, 2)]
    return Case("CropAndResize", [changes.get(i, x) for i, x in enumerate(inputs)], 1, attributes)


def delta_net(changes: Changes, outputs: int = 2, **attributes: Any) -> Case:
    """Two requests of 1 and 3 tokens, 1 head of queries and 2 of values."""
    rows = [f32(4, 1, 4), f32(4, 1, 4), f32(4, 2, 3)]
    inputs: list[Any] = [*rows, i32(0, 1, 4), f32(4, 2), f32(4, 2), f32(2, 2, 3, 4), None, None]
    return Case("GatedDeltaNet", [changes.get(i, x) for i, x in enumerate(inputs)], outputs, attributes)


def varlen(changes: Changes, outputs: int = 2, **attributes: Any) -> Case:
    inputs: list[Any] = [f32(4, 3), f32(3, 1, 2), i32(0, 1, 4), None, f32(2, 3, 1)]
    given = [changes.get(i, x) for i, x in enumerate(inputs)]
    return Case("VarlenCausalConvWithState", given, outputs, attributes)


def router(**attributes: Any) -> Case:
    return Case("MoEGroupRouter", [f32(2, 6), f32(6)], 1, {"top_k": 2, "n_group": 3, **attributes})


@pytest.mark.parametrize(
    "case", [decoder({}), sparse({}), crop({}), delta_net({}), varlen({}), router()], ids=lambda case: case.op_type
)
def test_inputs__unchanged__are_accepted(case: Case) -> None:
    run_op(op_of(case), case.inputs)


REFUSED: list[tuple[Case, str]] = [
    (delta_net({3: i32(0, 1, 3)}), "cumulative lengths from 0 to the 4 tokens"),
    (delta_net({3: i32(0, 4)}), "states of 1 requests"),
    (delta_net({3: None, 6: None}), "initial_state, cu_seqlens or inputs"),
    (delta_net({4: None}), "decay and beta as 'gated_delta' needs them"),
    (delta_net({}, gate_activation="softplus"), "a_log and dt_bias where"),
    (delta_net({}, 3), "no output state_update"),
    (varlen({2: i32(0, 5, 4)}), "cumulative lengths from 0 to the 4 tokens"),
    (varlen({}, 3), "no state_update"),
    (router(n_group=4), "groups and top_k that fit 6 experts"),
    (router(top_k=7), "groups and top_k that fit 6 experts"),
    (decoder({0: f32(4, 2, 16)}), "a query \\[batch, 1, hidden\\]"),
    (decoder({1: f32(4, 1, 8)}), "key and value of the query's shape"),
    (decoder({1: f32(4, 2, 6, 8), 2: f32(4, 2, 6, 8)}), "of cross attention"),
    (decoder({3: np.ones((4, 1, 4), np.int32)}), "no mask_index, or one"),
    (decoder({6: f32(4, 2, 4, 8)}), "past_key and past_value of one shape"),
    (decoder({7: None}), "one past_sequence_length"),
    (decoder({7: i32(5)}), "past_sequence_length in \\[0, 5\\)"),
    (decoder({8: i32(3)}), "beam_width 2"),
    (decoder({8: None}), "beam_width, and cache_indirection"),
    (decoder({9: None}), "beam_width 1"),
    (decoder({9: np.zeros((2, 2, 4), np.int32)}), "cache_indirection of 5 rows"),
    (decoder({}, past_present_share_buffer=0), "past_present_share_buffer 1"),
    (decoder({10: f32(40)}), "a bias of shape"),
    (sparse({5: i32([0, 1, 3], [0, 1, 3], [0, 1, 3])}), "block_row_indices and block_col_indices"),
    (sparse({7: i32(33)}), "total_sequence_length of 1 to 32"),
    (sparse({}, sparse_block_size=8), "total_sequence_length of 1 to 16"),
    (sparse({8: i32(21)}), "2 key_total_sequence_lengths"),
    (sparse({}, do_rotary=1), "cos_cache and sin_cache with do_rotary"),
    (crop({}, mode="cubic"), "mode bilinear or nearest"),
    (crop({1: f32(1, 5)}), "rois \\[R, 4\\]"),
    (crop({2: i32(0, 0)}), "batch_indices"),
    (crop({3: i32(0, 2)}), "a crop_size of at least 1 x 1"),
    (crop({3: i32(2, 2, 2)}), "crop_size of 2 elements"),
]


@pytest.mark.parametrize(("case", "told"), REFUSED, ids=[told for _, told in REFUSED])
def test_inputs__that_do_not_fit__are_refused(case: Case, told: str) -> None:
    with pytest.raises(InvalidGraph, match=f"expected .*{told}"):
        run_op(op_of(case), case.inputs)


@pytest.mark.parametrize(
    ("case", "told"),
    [
        (decoder({9: np.full((2, 2, 5), 2, np.int32)}), "beams in \\[0, 2\\), got 2"),
        (sparse({8: i32(21, 22)}), "at most 21 .* got 22"),
        (crop({2: i32(2)}), "batch_indices in \\[0, 1\\], the images of x, got 2"),
    ],
    ids=["beam", "length", "image"],
)
def test_values__outside__are_refused_on_the_host(case: Case, told: str) -> None:
    with pytest.raises(RuntimeException, match=told):
        run_op(op_of(case), case.inputs)


def test_decoder__no_past__attends_to_the_token_itself() -> None:
    value = np.arange(32, dtype=np.float32).reshape(2, 1, 16)
    case = Case("DecoderMaskedMultiHeadAttention", [f32(2, 1, 16), f32(2, 1, 16), value], 1, {"num_heads": 2})
    np.testing.assert_array_equal(run_op(op_of(case), case.inputs)[0], value)


def test_sparse__block_row_without_columns__sees_all_keys_alike() -> None:
    case = sparse({5: i32([0, 1, 1]), 3: np.random.default_rng(0).standard_normal((2, 2, 32, 16)).astype(np.float32)})
    cache = np.random.default_rng(1).standard_normal((2, 2, 32, 16)).astype(np.float32)
    y, _, values = run_op(op_of(case), [*case.inputs[:4], cache, *case.inputs[5:]])
    np.testing.assert_allclose(y.reshape(2, 2, 16), values[:, :, :21].mean(2), 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("attributes", "shape", "message"),
    [
        ({"size": 5}, (3, 4), "a size of 1 to 4"),
        ({"size": 0}, (3, 4), "a size of 1 to 4"),
        ({"size": 1, "dim": 0}, (0, 4), "a size of 1 to 0"),
        ({"size": 2, "step": 0}, (3, 4), "a step of at least 1, got 0"),
        ({"size": 2, "dim": 2}, (3, 4), r"an axis in \[-2, 1\], got 2"),
        ({"size": 1}, (), "rank 1 or more"),
    ],
)
def test_unfold_tensor__windows_that_do_not_fit__invalid_graph(
    attributes: dict[str, Any], shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(InvalidGraph, match=f"UnfoldTensor: .*{message}"):
        UnfoldTensor(**attributes).infer(TensorType(DType.FLOAT, shape))


@pytest.mark.parametrize("shape", [(3,), (2, 3, 4), (1, 1, 3, 4)])
def test_dynamic_time_warping__no_matrix__invalid_graph(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidGraph, match=r"\[M, N\] or \[1, M, N\]"):
        run_op(DynamicTimeWarping(), [np.zeros(shape, np.float32)])


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 0, 3)])
def test_dynamic_time_warping__empty_matrix__no_steps(shape: tuple[int, ...]) -> None:
    (y,) = run_op(DynamicTimeWarping(), [np.zeros(shape, np.float32)])
    assert (y.shape, y.dtype) == ((2, 0), np.int32)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"mrope_section": (2, 1)}, "three numbers with the sum 4"),
        ({"mrope_section": (2, 1, 2)}, "three numbers with the sum 4"),
        ({"mrope_section": (5, -1, 0)}, "three numbers with the sum 4"),
        ({"mrope_layout": 2}, "an mrope_layout of 0 or 1, got 2"),
        ({"num_heads": None}, "num_heads that divide"),
        ({"num_heads": 3}, "num_heads that divide"),
        ({"rotary_embedding_dim": 5}, "an even number of components to rotate, at most 8"),
        ({"rotary_embedding_dim": 10}, "an even number of components to rotate, at most 8"),
        ({"rotary_embedding_dim": 6, "mrope_section": (1, 1, 1)}, r"caches of one shape \[positions, 3\]"),
        ({"positions": (2, 3)}, r"position_ids of int64 \[3, 2, 3\]"),
        ({"x": (3, 16)}, "rank 3 or 4"),
        ({"x": (2, 2, 3, 8), "num_heads": None, "rotary_embedding_dim": 8}, "num_heads with rotary_embedding_dim"),
    ],
)
def test_mrotary_embedding__attributes_that_do_not_fit__invalid_graph(changed: dict[str, Any], message: str) -> None:
    given = {"mrope_section": (2, 1, 1), "num_heads": 2, "x": (2, 3, 16), "positions": (3, 2, 3), **changed}
    x, table = TensorType(DType.FLOAT, given.pop("x")), TensorType(DType.FLOAT, (9, 4))
    positions = TensorType(DType.INT64, given.pop("positions"))
    with pytest.raises(InvalidGraph, match=f"MRotaryEmbedding: .*{message}"):
        MRotaryEmbedding(**given).infer(x, positions, table, table)


@pytest.mark.parametrize("place", [-1, 9])
def test_mrotary_embedding__position_past_the_caches__is_named(place: int) -> None:
    table, positions = np.ones((9, 4), np.float32), np.zeros((3, 1, 2), np.int64)
    positions[1, 0, 1] = place
    x = np.ones((1, 1, 2, 8), np.float32)
    with pytest.raises(RuntimeException, match=rf"positions in \[0, 8\].*got {place} at \[1, 0, 1\]"):
        run_op(MRotaryEmbedding(mrope_section=(2, 1, 1)), [x, positions, table, table])
