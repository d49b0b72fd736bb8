"""Outputs are arrays of the caller's own, as onnxruntime's are; what is such an array already is not copied."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import pyruntime
from pyruntime.ir import DType, HostTensor
from pyruntime.ops.host import HostValue
from pyruntime.session.run.ownership import owned

node = helper.make_node

INITIALIZERS = [
    *(
        numpy_helper.from_array(np.array(value, np.int64), name)
        for name, value in {"shape": [4, 3], "two": [2], "four": [4], "one": [1], "wide": [2, 3, 4]}.items()
    ),
    numpy_helper.from_array(np.ones((3, 4), np.float32), "w"),
]

VIEWS: dict[str, tuple[list[NodeProto], list[str]]] = {
    "the input": ([], ["x"]),
    "Identity": ([node("Identity", ["x"], ["y"])], ["y"]),
    "Reshape": ([node("Reshape", ["x", "shape"], ["y"])], ["y"]),
    "Flatten": ([node("Flatten", ["x"], ["y"])], ["y"]),
    "Unsqueeze": ([node("Unsqueeze", ["x", "one"], ["y"])], ["y"]),
    "Transpose": ([node("Transpose", ["x"], ["y"])], ["y"]),
    "Slice": ([node("Slice", ["x", "two", "four", "one"], ["y"])], ["y"]),
    "Split": ([node("Split", ["x"], ["y", "z"], axis=1, num_outputs=2)], ["y", "z"]),
    "Expand": ([node("Expand", ["x", "wide"], ["y"])], ["y"]),
    "Cast": ([node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)], ["y"]),
    "Dropout": ([node("Dropout", ["x"], ["y"])], ["y"]),
    "Sum of one": ([node("Sum", ["x"], ["y"])], ["y"]),
    "Concat of one": ([node("Concat", ["x"], ["y"], axis=0)], ["y"]),
    "two outputs of one value": ([node("Relu", ["x"], ["y"]), node("Identity", ["y"], ["z"])], ["y", "z"]),
    "an output and its view": ([node("Relu", ["x"], ["y"]), node("Reshape", ["y", "shape"], ["z"])], ["y", "z"]),
    "the same view twice": ([node("Transpose", ["x"], ["y"]), node("Identity", ["y"], ["z"])], ["y", "z"]),
    "a weight": ([node("Identity", ["w"], ["y"])], ["y"]),
    "a view of a weight": ([node("Transpose", ["w"], ["t"]), node("Identity", ["t"], ["y"])], ["y"]),
    "an initializer": ([node("Relu", ["x"], ["y"])], ["w", "y"]),
    "Constant": ([node("Constant", [], ["y"], value=INITIALIZERS[-1])], ["y"]),
    "ConstantOfShape": ([node("Shape", ["x"], ["s"]), node("ConstantOfShape", ["s"], ["y"])], ["y"]),
}


def model_of(nodes: Sequence[NodeProto], outputs: Sequence[str]) -> bytes:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        INITIALIZERS,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return bytes(made.SerializeToString())


def fresh() -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.arange(1, 13, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("way", ["run", "run_async", "run_with_ort_values", "run_with_iobinding"])
@pytest.mark.parametrize("name", VIEWS)
def test_outputs__views_of_anything__are_owned_writable_and_contiguous(name: str, way: str) -> None:
    model = model_of(*VIEWS[name])
    names = VIEWS[name][1]
    session = pyruntime.InferenceSession(model)
    x = fresh()

    def run() -> list[Any]:
        if way == "run":
            return session.run(None, {"x": x})
        if way == "run_async":
            return asyncio.run(session.run_async(None, {"x": x}))
        if way == "run_with_ort_values":
            given = pyruntime.OrtValue.ortvalue_from_numpy(x)
            return [value.numpy() for value in session.run_with_ort_values(None, {"x": given})]
        binding = session.io_binding()
        binding.bind_cpu_input("x", x)
        for output in names:
            binding.bind_output(output)
        session.run_with_iobinding(binding)
        return [value.numpy() for value in binding.get_outputs()]

    reference = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    expected = reference.run(None, {"x": fresh()})
    results = run()
    assert all(np.array_equal(made, right) for made, right in zip(results, expected, strict=True))
    for made in results:
        assert made.flags.c_contiguous and made.flags.writeable
    for number, made in enumerate(results):
        made[...] = 77 + number
    for number, made in enumerate(results):
        assert np.all(made == 77 + number)
    assert np.array_equal(x, fresh())
    x[:] = -5
    assert all(np.all(made == 77 + number) for number, made in enumerate(results))
    x[:] = fresh()
    assert all(np.array_equal(made, right) for made, right in zip(run(), expected, strict=True))


def test_outputs__made_by_the_run__are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("copied")

    nodes = [
        node("MatMul", ["x", "wt"], ["y"]),
        node("Transpose", ["w"], ["wt"]),
        node("Reshape", ["m", "shape"], ["z"]),
    ]
    nodes = [nodes[1], nodes[0], node("Mul", ["x", "x"], ["m"]), nodes[2], node("Relu", ["x"], ["v"])]
    session = pyruntime.InferenceSession(model_of(nodes, ["y", "z", "v"]))
    x = fresh()
    expected = session.run(None, {"x": x})
    monkeypatch.setattr(np, "array", refuse)
    made = session.run(None, {"x": x})
    assert all(np.array_equal(a, b) for a, b in zip(made, expected, strict=True))


def test_outputs__strings_and_sequences__are_owned() -> None:
    sequence = helper.make_tensor_sequence_value_info
    graph = helper.make_graph(
        [
            node("Identity", ["s"], ["t"]),
            node("SequenceConstruct", ["x", "x"], ["q"]),
            node("Identity", ["p"], ["r"]),
        ],
        "g",
        [
            helper.make_tensor_value_info("s", TensorProto.STRING, [2]),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4]),
            sequence("p", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("t", TensorProto.STRING, None),
            sequence("q", TensorProto.FLOAT, None),
            sequence("r", TensorProto.FLOAT, None),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()
    feeds: dict[str, Any] = {"s": np.array(["a", "b"], object), "x": fresh(), "p": [fresh(), fresh()]}
    t, q, r = pyruntime.InferenceSession(model).run(None, feeds)
    t[0] = "changed"
    q[0][:] = r[0][:] = -1
    assert feeds["s"].tolist() == ["a", "b"]
    assert all(np.array_equal(a, fresh()) for a in (feeds["x"], *feeds["p"], q[1], r[1]))


def test_owned__what_others_refer_to__is_copied_once() -> None:
    def tensor(array: Any) -> HostTensor:
        return HostTensor.of(array, DType.FLOAT)

    alone, shared, base = np.zeros(3, np.float32), np.zeros(3, np.float32), np.zeros((2, 3), np.float32)
    addresses = [a.ctypes.data for a in (alone, shared, base)]
    outputs: dict[str, HostValue] = {
        "alone": tensor(alone),
        "shared": tensor(shared),
        "first": tensor(base[0]),
        "twice": tensor(base[1]),
    }
    del alone, base
    made = owned(outputs)  # type: ignore[arg-type]
    assert list(made) == ["alone", "shared", "first", "twice"] and not outputs
    found = [value.array().ctypes.data for value in made.values()]  # type: ignore[union-attr]
    assert found[0] == addresses[0] and found[1] != addresses[1]
    assert (found[2] == addresses[2]) and found[3] != addresses[2] + 12


def test_ortvalue__numpy__is_the_tensors_memory_as_in_onnxruntime() -> None:
    for library in (onnxruntime, pyruntime):
        x = fresh()
        value = library.OrtValue.ortvalue_from_numpy(x)
        value.numpy()[0, 0] = 50
        assert x[0, 0] == 50
        session = library.InferenceSession(model_of(*VIEWS["Identity"]), providers=["CPUExecutionProvider"])
        (made,) = session.run_with_ort_values(None, {"x": value})
        made.numpy()[0, 0] = 60
        assert made.numpy()[0, 0] == 60 and x[0, 0] == 50
        binding = session.io_binding()
        binding.bind_cpu_input("x", x)
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        (copy,) = binding.copy_outputs_to_cpu()
        copy[:] = 0
        assert np.array_equal(binding.get_outputs()[0].numpy(), x)
