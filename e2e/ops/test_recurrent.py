"""LSTM, GRU, RNN on the GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from e2e.harness.gpu import Gpu
from pyruntime.kernels import recurrent
from tests.harness import make_op, run_op, typed
from tests.ops.recurrent.recurrent_cases import CASES, OUTPUTS, ROUNDED, inputs_of, rounded_inputs
from tests.oracle import node_of


def _same(gpu: Gpu, case: str, dtype: Any = np.float32, tolerance: float = 2e-5, **sizes: int) -> None:
    """The GPU's outputs are the host's."""
    name, attributes, inputs = inputs_of(case, **sizes)
    inputs = [x.astype(dtype) if x is not None and x.dtype == np.float32 else x for x in inputs]
    if sizes.get("layout"):
        attributes["layout"] = 1
    op = make_op(node_of(name, inputs, OUTPUTS[name], **attributes), {"": 22})
    for host, device in zip(run_op(op, inputs), run_op(op, inputs, gpu), strict=True):
        assert device.dtype == host.dtype
        np.testing.assert_allclose(device, host, tolerance, tolerance)


@pytest.mark.parametrize("case", CASES)
def test_recurrent__one_loop__as_host(gpu: Gpu, case: str) -> None:
    _same(gpu, case)


@pytest.mark.parametrize("case", ["rnn-all", "rnn-reverse", "gru-late", "lstm-whole"])
def test_recurrent__one_unit__has_both_biases(gpu: Gpu, case: str) -> None:
    _same(gpu, case, units=1, time=1)
    _same(gpu, case, units=1)


@pytest.mark.parametrize("case", ["lstm-all", "gru-all", "rnn-all", "lstm-whole"])
def test_recurrent__no_times__as_host(gpu: Gpu, case: str) -> None:
    _same(gpu, case, time=0)


@pytest.mark.parametrize(
    "case", ["lstm-all", "lstm-whole", "gru-all", "gru-whole", "gru-late", "gru-late-whole", "rnn-reverse"]
)
def test_recurrent__step_by_step__as_host(gpu: Gpu, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent, "LOOPED", 0)
    _same(gpu, case, units=40)


@pytest.mark.parametrize("case", ["lstm-all", "lstm-whole", "gru-all", "gru-whole"])
def test_recurrent__loop_in_parts__as_host(gpu: Gpu, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent, "LONGEST", 1 << 15)
    _same(gpu, case, units=50, time=7)


@pytest.mark.parametrize(
    "case", ["lstm-all", "lstm-whole", "lstm-lens", "gru-late", "gru-whole", "rnn-all", "rnn-whole"]
)
def test_recurrent__batch_first__as_host(gpu: Gpu, case: str) -> None:
    _same(gpu, case, layout=1)


@pytest.mark.parametrize("case", ["lstm-all", "lstm-whole", "gru-all", "rnn-all", "rnn-whole"])
def test_recurrent__half__as_host(gpu: Gpu, case: str) -> None:
    _same(gpu, case, np.float16, 2e-3)
    _same(gpu, case, ml_dtypes.bfloat16, 1e-2)


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("wanted", [("", "", "c"), ("", "h", ""), ("y", "", "c"), ("", "h", "c")])
@pytest.mark.parametrize("case", ["lstm-all", "lstm-whole"])
def test_lstm__some_outputs_wanted__as_host(case: str, wanted: tuple[str, ...], layout: int, gpu: Gpu) -> None:
    name, attributes, inputs = inputs_of(case, layout=layout)
    node = node_of(name, inputs, 3, **attributes, layout=layout)
    node.output[:] = wanted
    op = make_op(node, {"": 14})
    host = [value for value, asked in zip(run_op(op, inputs), wanted, strict=True) if asked]
    for mine, theirs in zip(run_op(op, inputs, gpu), host, strict=True):
        np.testing.assert_allclose(mine, theirs, 2e-5, 2e-5)


@pytest.mark.parametrize(("case", "dispatches"), [("lstm-whole", 3), ("gru-whole", 3), ("lstm-all", 7)])
def test_recurrent__outputs_in_float32__steps_write_them(case: str, dispatches: int, gpu: Gpu) -> None:
    """One product and one loop; h of the last step, and where lengths are given what makes and takes initial states."""
    name, attributes, inputs = inputs_of(case)
    op = make_op(node_of(name, inputs, OUTPUTS[name], **attributes), {"": 14})
    assert len(op.lower(gpu.target, *(None if x is None else typed(x) for x in inputs))) == dispatches


@pytest.mark.parametrize("case", ROUNDED)
def test_dynamic_quantize_lstm__steps_of_int8__as_host(case: str, gpu: Gpu) -> None:
    inputs, attributes = rounded_inputs(*ROUNDED[case])
    node = node_of("DynamicQuantizeLSTM", inputs, 3, "com.microsoft", **attributes)
    op = make_op(node, {"": 14, "com.microsoft": 1})
    for host, device in zip(run_op(op, inputs), run_op(op, inputs, gpu), strict=True):
        np.testing.assert_allclose(device, host, rtol=0, atol=2e-5)
