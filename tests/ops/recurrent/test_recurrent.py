"""LSTM, GRU, RNN on the host."""

from __future__ import annotations

import numpy as np
import pytest

from pyruntime.errors import InvalidGraph
from pyruntime.ir import DType, TensorType
from pyruntime.ops.recurrent.recurrent import GRU, LSTM, RNN
from tests.harness import make_op, run_op
from tests.ops.recurrent.recurrent_cases import CASES, OUTPUTS, ROUNDED, inputs_of, rounded_inputs
from tests.oracle import check_against_ort, node_of


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("opset", [7, 14])
def test_recurrent__case__as_onnxruntime(case: str, opset: int) -> None:
    name, attributes, inputs = inputs_of(case)
    check_against_ort(name, inputs, opset=opset, outputs=OUTPUTS[name], **attributes)


@pytest.mark.parametrize("case", ["lstm-all", "gru-all", "rnn-all"])
def test_recurrent__batch_first__the_same_transposed(case: str) -> None:
    name, attributes, inputs = inputs_of(case)
    plain = run_op(make_op(node_of(name, inputs, OUTPUTS[name], **attributes), {"": 14}), inputs)
    name, attributes, swapped = inputs_of(case, layout=1)
    for i in (5, 6):
        if i < len(inputs):
            swapped[i] = inputs[i].swapaxes(0, 1)  # type: ignore[union-attr]
    op = make_op(node_of(name, swapped, OUTPUTS[name], layout=1, **attributes), {"": 14})
    for first, second in zip(plain, run_op(op, swapped), strict=True):
        order = (2, 0, 1, 3) if first.ndim == 4 else (1, 0, 2)
        np.testing.assert_allclose(first.transpose(order), second, 1e-6, 1e-6)


@pytest.mark.parametrize("case", ["lstm-all", "gru-all", "rnn-all", "lstm-lens", "gru-lens", "rnn-lens"])
def test_recurrent__no_sequence_has_steps__as_onnxruntime(case: str) -> None:
    name, attributes, inputs = inputs_of(case)
    inputs[4] = np.zeros(3, np.int32)
    check_against_ort(name, inputs, opset=14, outputs=OUTPUTS[name], **attributes)


@pytest.mark.parametrize("case", ["lstm-all", "gru-all", "rnn-all"])
def test_recurrent__no_times__last_states_of_zero(case: str) -> None:
    name, attributes, inputs = inputs_of(case, time=0)
    for lens in (None, np.zeros(3, np.int32)):
        inputs[4] = lens
        op = make_op(node_of(name, inputs, OUTPUTS[name], **attributes), {"": 14})
        y, *last = run_op(op, inputs)
        assert y.shape == (0, 2, 3, 6)
        assert all(state.shape == (2, 3, 6) and not state.any() for state in last)


@pytest.mark.parametrize(
    ("op", "shapes", "message"),
    [
        (LSTM(), ((5, 2, 3), (1, 16, 3), (1, 12, 4)), "r of shape"),
        (GRU(direction="sideways"), ((5, 2, 3), (1, 12, 3), (1, 12, 4)), "direction"),
        (RNN(activations=("Wavy",)), ((5, 2, 3), (1, 4, 3), (1, 4, 4)), "activations"),
        (GRU(activations=("Tanh",)), ((5, 2, 3), (1, 12, 3), (1, 12, 4)), "2 activations"),
        (RNN(), ((5, 2, 3), (1, 4, 3), (1, 4, 4), (1, 4)), "b of shape"),
        (RNN(hidden_size=5), ((5, 2, 3), (1, 4, 3), (1, 4, 4)), "5 units"),
    ],
)
def test_recurrent__malformed__invalid_graph(op: RNN, shapes: tuple[tuple[int, ...], ...], message: str) -> None:
    with pytest.raises(InvalidGraph, match=message):
        op.infer(*(TensorType(DType.FLOAT, s) for s in shapes))


@pytest.mark.parametrize("case", ROUNDED)
def test_dynamic_quantize_lstm__quantised_input_and_state__as_onnxruntime_on_one_thread(case: str) -> None:
    inputs, attributes = rounded_inputs(*ROUNDED[case])
    microsoft = {"domain": "com.microsoft", **attributes}
    check_against_ort("DynamicQuantizeLSTM", inputs, opset=14, outputs=3, tolerance=(0, 2e-5), **microsoft)


def test_dynamic_quantize_lstm__sequence_without_steps__last_states_zero_as_onnxruntime() -> None:
    inputs, attributes = rounded_inputs(*ROUNDED["steps of a batch"])
    inputs[4] = np.array([0, 4, 2], np.int32)
    microsoft = {"domain": "com.microsoft", **attributes}
    check_against_ort("DynamicQuantizeLSTM", inputs, opset=14, outputs=3, tolerance=(0, 2e-5), **microsoft)
