"""Typed arrays of JavaScript as inputs of sessions in Pyodide: taken by their type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from e2e.harness.python import BrowserPython
from e2e.harness.sessions import run

TYPES: dict[str, tuple[int, list[Any]]] = {
    "Int8Array": (TensorProto.INT8, [-3, 0, 127]),
    "Uint8Array": (TensorProto.UINT8, [0, 1, 255]),
    "Uint8ClampedArray": (TensorProto.UINT8, [0, 1, 255]),
    "Int16Array": (TensorProto.INT16, [-300, 0, 300]),
    "Uint16Array": (TensorProto.UINT16, [0, 300, 65535]),
    "Int32Array": (TensorProto.INT32, [-70000, 0, 70000]),
    "Uint32Array": (TensorProto.UINT32, [0, 1, 2**32 - 1]),
    "BigInt64Array": (TensorProto.INT64, [-(2**40), 0, 2**40]),
    "BigUint64Array": (TensorProto.UINT64, [0, 1, 2**63]),
    "Float32Array": (TensorProto.FLOAT, [-0.5, 0.0, 2.5]),
    "Float64Array": (TensorProto.DOUBLE, [-0.5, 0.0, 2.5]),
}


def same(kind: int, shape: tuple[Any, ...] = ("n",)) -> bytes:
    """y = x, of this type."""
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, None)],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


FEED = """
    import js
    from pyodide.code import run_js
    session = await InferenceSession.create(model, providers=providers)
    try:
        (y,) = await session.run_async(None, {"x": run_js(value)})
        found = {"values": y.tolist(), "type": str(y.dtype)}
    except errors.OrtError as error:
        found = {"error": type(error).__name__, "message": str(error)}
    session.release()
    found
"""


@pytest.mark.parametrize("name", TYPES)
def test_typed_array__of_each_type__is_taken_by_it(shared_lone_python: BrowserPython, name: str) -> None:
    kind, values = TYPES[name]
    elements = [f"{value}n" if name.startswith("Big") else str(value) for value in values]
    text = f"globalThis.{name}?.of({', '.join(elements)})"
    for providers in (["CPUExecutionProvider"], ["WebGpuExecutionProvider", "CPUExecutionProvider"]):
        if not run(shared_lone_python, "from pyodide.code import run_js\nbool(run_js(text))", text=text):
            pytest.skip(f"this browser has no {name}")
        found = run(shared_lone_python, FEED, model=same(kind), value=text, providers=providers)
        wanted = str(np.dtype(helper.tensor_dtype_to_np_dtype(kind)))
        assert found == {"values": values, "type": wanted}


VALUES = {
    "a part of a buffer": (TensorProto.FLOAT, "new Float32Array(Float32Array.of(1, 2, 3, 4).buffer, 4, 2)", [2, 3]),
    "ArrayBuffer": (TensorProto.FLOAT, "Float32Array.of(1, 2).buffer", [1, 2]),
    "DataView": (TensorProto.INT16, "new DataView(Int16Array.of(1, 2, 3).buffer, 2)", [2, 3]),
    "bits of float16": (TensorProto.FLOAT16, "Uint16Array.of(0x3c00, 0xc000)", [1, -2]),
    "bytes of bool": (TensorProto.BOOL, "Uint8Array.of(0, 1)", [False, True]),
    "empty": (TensorProto.FLOAT, "new Float32Array(0)", []),
    "Array": (TensorProto.FLOAT, "[1, 2.5]", [1, 2.5]),
}


@pytest.mark.parametrize("name", VALUES)
def test_javascript_value__without_numpys_type__is_read_as_declared(
    shared_lone_python: BrowserPython, name: str
) -> None:
    kind, text, values = VALUES[name]
    found = run(shared_lone_python, FEED, model=same(kind), value=text, providers=["CPUExecutionProvider"])
    assert found.get("values") == values, found


WRONG = {
    "another type": (
        (TensorProto.FLOAT, ("n",)),
        "Float64Array.of(1)",
        "Actual: (tensor(double)), expected: (tensor(fl",
    ),
    "another rank": ((TensorProto.FLOAT, (1, 2)), "Float32Array.of(1, 2)", "numpy.asarray(value.to_py()).reshape"),
    "part of an element": (
        (TensorProto.FLOAT, ("n",)),
        "new ArrayBuffer(6)",
        "6 bytes are not a whole number of tensor(fl",
    ),
    "bytes for strings": ((TensorProto.STRING, ("n",)), "new ArrayBuffer(6)", "ArrayBuffer has no element type"),
}


@pytest.mark.parametrize("name", WRONG)
def test_typed_array__that_does_not_fit__is_refused_by_its_own_type(
    shared_lone_python: BrowserPython, name: str
) -> None:
    (kind, shape), text, message = WRONG[name]
    found = run(shared_lone_python, FEED, model=same(kind, shape), value=text, providers=["CPUExecutionProvider"])
    assert found.get("error") == "InvalidArgument" and message in found["message"], found


def test_typed_array__in_values_bindings_and_options__is_taken(shared_lone_python: BrowserPython) -> None:
    found = run(
        shared_lone_python,
        """
        import js
        values = js.Float32Array.of(1, 2)
        session = await InferenceSession.create(model, providers=["CPUExecutionProvider"])
        made = pyruntime.OrtValue.ortvalue_from_numpy(values)
        made.update_inplace(js.Float32Array.of(3, 4))
        binding = session.io_binding()
        binding.bind_cpu_input("x", values)
        binding.bind_output("y")
        await session.run_with_iobinding_async(binding)
        (y,) = await binding.copy_outputs_to_cpu_async()
        session.release()
        [made.data_type(), made.numpy().tolist(), y.tolist()]
        """,
        model=same(TensorProto.FLOAT),
    )
    assert found == ["tensor(float)", [3, 4], [1, 2]]
