"""Custom operators: attributes, shapes, NumPy, generated WGSL, redefinition."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import pyruntime as ort
from pyruntime.device.null import NullDevice
from pyruntime.errors import InvalidGraph
from pyruntime.kernels import Target
from pyruntime.ops.base import Unsupported, registered
from tests.session.doubles import on_device

X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
FLOAT = ort.TensorType(ort.DType.FLOAT, (2, 3))


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Operators of a test end with it."""
    yield
    for key in [key for key in registered if key[0] == "my.domain"]:
        del registered[key]


def model(op_type: str, inputs: int = 1, **attributes: Any) -> bytes:
    names = [f"x{i}" for i in range(inputs)]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["y"], "n", domain="my.domain", **attributes)],
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())


def define_swish() -> type[ort.Op]:
    @ort.custom_op("my.domain", "Swish2")
    class Swish2(ort.Op):
        beta: float = 1.0
        wgsl = "x / (1.0 + exp(-beta * x))"

        def infer(self, x: Any) -> Any:
            return (x,)

        def evaluate(self, x: Any) -> Any:
            return (x / (1 + np.exp(-self.beta * x)),)

    return Swish2


def test_custom_op__numpy__uses_the_attribute() -> None:
    define_swish()
    (y,) = ort.InferenceSession(model("Swish2", beta=3.0)).run(None, {"x0": X})
    np.testing.assert_allclose(y, X / (1 + np.exp(-3 * X)), rtol=1e-6)


def test_custom_op__infer_that_returns_its_input__does_not_return_its_value() -> None:
    cls = define_swish()
    (kind,) = cls().infer(ort.TensorType(ort.DType.FLOAT, (2,), lambda: np.zeros(2, np.float32)))
    assert not kind.is_known


def test_custom_op__expression__becomes_an_elementwise_kernel() -> None:
    (dispatch,) = define_swish()(beta=2.0).lower(Target(), FLOAT)  # type: ignore[call-arg]
    source = dispatch.kernel.wgsl()
    assert "x / (1.0 + exp(-beta * x))" in source and "// Swish2" in source
    assert dispatch.params[4:8] == np.float32(2).tobytes()


def test_custom_op__device__runs_there() -> None:
    define_swish()
    with on_device(NullDevice()):
        session = ort.InferenceSession(model("Swish2"))
        asyncio.run(session.run_async(None, {"x0": X}))
    (node,) = session.explain().nodes
    assert (node.placement, node.kernels) == ("gpu", ("Swish2",))


def test_custom_op__no_methods__broadcasts() -> None:
    @ort.custom_op("my.domain", "Mix")
    class Mix(ort.Op):
        wgsl = "mix(x, x1, 0.5)"

    row = ort.TensorType(ort.DType.FLOAT, (3,))
    assert Mix().infer(FLOAT, row) == (FLOAT,)
    assert "mix(x, x1, 0.5)" in Mix().lower(Target(), FLOAT, row)[0].kernel.wgsl()


def test_custom_op__input_called_y__is_told_from_the_result() -> None:
    @ort.custom_op("my.domain", "Gap")
    class Gap(ort.Op):
        wgsl = "abs(x - y)"

        def infer(self, x: Any, y: Any) -> Any:
            return x

    (dispatch,) = Gap().lower(Target(), FLOAT, FLOAT)
    assert "abs(x - y_)" in dispatch.kernel.wgsl()
    assert [b.name for b in dispatch.kernel.bindings] == ["x", "y_", "y"]


def test_custom_op__components_and_comments__are_no_inputs_and_no_kernel() -> None:
    @ort.custom_op("my.domain", "Turn")
    class Turn(ort.Op):
        beta: float = 2.0
        wgsl = """// beta: not used; no @compute either
            return vec2(x, y).y - y; /* y */"""

        def infer(self, x: Any, y: Any) -> Any:
            return x

    (dispatch,) = Turn().lower(Target(), FLOAT, FLOAT)
    source = dispatch.kernel.wgsl()
    assert "return vec2(x, y_).y - y_; /* y */" in source
    assert "params.beta" not in source


def test_custom_op__kernel_source__has_its_own_dispatch() -> None:
    @ort.custom_op("my.domain", "RowSum")
    class RowSum(ort.Op):
        scale: float = 1.0
        wgsl = """
            struct Params { columns: u32, scale: f32 }
            @compute @workgroup_size(1)
            fn main(@builtin(workgroup_id) at: vec3<u32>) {
              var sum = 0.0;
              for (var c = 0u; c < params.columns; c++) { sum += load_x(at.x * params.columns + c); }
              store_y(at.x, params.scale * sum);
            }"""

        def infer(self, x: Any) -> Any:
            return x.with_shape(x.shape[0])

        def params(self, *inputs: Any) -> Any:
            return {"columns": inputs[0].shape[1]}

        def workgroups(self, *inputs: Any) -> Any:
            return (inputs[0].shape[0], 1, 1)

    (dispatch,) = RowSum(scale=0.5).lower(Target(), FLOAT)
    assert dispatch.grid == (2, 1, 1)
    assert dispatch.params[:8] == np.uint32(3).tobytes() + np.float32(0.5).tobytes()


def test_custom_op__kernel_that_cannot_be__says_what_was_expected() -> None:
    def lowered(wgsl: str, **inputs: Any) -> Any:
        @ort.custom_op("my.domain", "Wrong")
        class Wrong(ort.Op):
            def infer(self, x: Any, bias: Any = None) -> Any:
                return x

        Wrong.wgsl = wgsl
        return Wrong().lower(Target(), FLOAT, inputs.get("bias"))

    main = "@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) at: vec3<u32>) { %s }"
    with pytest.raises(InvalidGraph, match="expected an entry point called main, got start"):
        lowered(main.replace("main", "start") % "store_y(at.x, load_x(at.x));")
    with pytest.raises(InvalidGraph, match="x, y, or functions that the kernel defines, got load_z"):
        lowered(main % "store_y(at.x, load_z(at.x));")
    with pytest.raises(Unsupported, match="calls load_bias, and the node has no input bias"):
        lowered(main % "store_y(at.x, load_x(at.x) + load_bias(at.x));")
    assert lowered(main % "store_y(at.x, load_x(at.x) + load_bias(at.x));", bias=FLOAT)
    sized = "const SIZE: u32 = 2u; " + main.replace("64", "SIZE") % "store_y(at.x, load_x(at.x));"
    assert lowered(sized)[0].grid == (3, 1, 1), "one invocation for each of 6 elements"
    assert lowered("fn load_row(r: u32) -> f32 { return load_x(r); }" + main % "store_y(at.x, load_row(at.x));")


def test_custom_op__defined_again__takes_the_place_of_the_first() -> None:
    define_swish()
    old = ort.InferenceSession(model("Swish2"))

    @ort.custom_op("my.domain", "Swish2")
    class Other(ort.Op):
        def infer(self, x: Any) -> Any:
            return x

        def evaluate(self, x: Any) -> Any:
            return (2 * x,)

    (new,) = ort.InferenceSession(model("Swish2")).run(None, {"x0": X})
    np.testing.assert_array_equal(new, 2 * X)
    np.testing.assert_allclose(old.run(None, {"x0": X})[0], X / (1 + np.exp(-X)), rtol=1e-6)


def test_custom_op__unknown_attribute__names_those_there_are() -> None:
    define_swish()
    with pytest.raises(ort.InvalidGraph, match=r"gamma.*beta"):
        ort.InferenceSession(model("Swish2", gamma=1.0))


def test_custom_op__no_numpy__says_so() -> None:
    @ort.custom_op("my.domain", "OnlyGpu")
    class OnlyGpu(ort.Op):
        wgsl = "x"

    with pytest.raises(ort.NotImplemented, match="evaluate"):
        ort.InferenceSession(model("OnlyGpu")).run(None, {"x0": X})


def test_custom_op__name_of_onnx__is_refused() -> None:
    with pytest.raises(ort.InvalidArgument, match="Relu"):
        ort.custom_op("", "Relu")


def test_custom_op__not_an_op__is_refused() -> None:
    with pytest.raises(ort.InvalidArgument, match="derived"):
        ort.custom_op("my.domain", "X")(int)  # type: ignore[type-var]
