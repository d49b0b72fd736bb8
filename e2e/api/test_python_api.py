"""onnxruntime's API in the browser: tensors that stay on the GPU, custom operators, profiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from e2e.harness.python import BrowserPython


def model(nodes: list[Any], shape: list[Any], constants: dict[str, Any] | None = None) -> np.ndarray[Any, Any]:
    """The bytes of a float model from x to y."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return np.frombuffer(made.SerializeToString(), np.uint8)


STEP = model(
    [helper.make_node("MatMul", ["x", "w"], ["h"], "product"), helper.make_node("Add", ["h", "b"], ["y"], "sum")],
    ["N", 4],
    {"w": (np.eye(4, dtype=np.float32) * 2)[:, ::-1].copy(), "b": np.ones(4, np.float32)},
)
X = np.arange(8, dtype=np.float32).reshape(2, 4)


def steps(x: Any, count: int) -> Any:
    """`count` runs of STEP, each on the result of the one before."""
    for _ in range(count):
        x = 2 * x[:, ::-1] + 1
    return x


def test_iobinding__output_fed_back__stays_on_the_gpu(python_in_browser: BrowserPython) -> None:
    got = python_in_browser(
        """
        import numpy as np, pyruntime as ort
        from pyruntime.session.environment import device
        session = ort.InferenceSession(bytes(model), providers=["WebGpuExecutionProvider"])
        gpu = await device()
        value = ort.OrtValue.ortvalue_from_numpy(x, "webgpu")
        binding = session.io_binding()
        places = []
        sizes = []
        for _ in range(6):
            binding.bind_ortvalue_input("x", value)
            binding.bind_output("y", "webgpu")
            session.run_with_iobinding(binding)
            value = binding.get_outputs()[0]
            places.append(value.device_name())
            sizes.append(gpu.ledger.total)
        held = sizes[-1] == sizes[2]
        in_place = ort.OrtValue.ortvalue_from_numpy(x, "webgpu")
        binding.bind_ortvalue_input("x", in_place)
        binding.bind_ortvalue_output("y", in_place)
        for _ in range(3):
            session.run_with_iobinding(binding)
        {"y": value.numpy(), "places": places, "held": held, "in_place": in_place.numpy(),
         "cpu": binding.copy_outputs_to_cpu()[0]}
        """,
        model=STEP,
        x=X,
    )
    assert got["places"] == ["webgpu"] * 6
    assert got["held"], "a loop takes more memory with every trip"
    np.testing.assert_array_equal(got["y"], steps(X, 6))
    np.testing.assert_array_equal(got["in_place"], steps(X, 3))
    np.testing.assert_array_equal(got["cpu"], steps(X, 3))


def test_ort_values__between_sessions__need_no_host(python_in_browser: BrowserPython) -> None:
    got = python_in_browser(
        """
        import numpy as np, pyruntime as ort
        first, second = (ort.InferenceSession(bytes(model)) for _ in range(2))
        value = await ort.OrtValue.create(x, "webgpu")
        (between,) = await first.run_with_ort_values_async(None, {"x": value})
        (last,) = second.run_with_ort_values(["y"], {"x": between})
        value.update_inplace(x + 1)
        mixed = first.run(None, {"x": value})[0]
        on_host = first.run_with_ort_values(None, {"x": ort.OrtValue.ortvalue_from_numpy(x)})[0]
        wrong = None
        try:
            binding = first.io_binding()
            binding.bind_ortvalue_input("x", value)
            binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_shape_and_type([5, 4], np.float32, "webgpu"))
            first.run_with_iobinding(binding)
        except RuntimeError as error:
            wrong = str(error)
        {"between": between.device_name(), "y": last.numpy(), "mixed": mixed, "host": on_host.device_name(),
         "wrong": wrong, "shape": last.shape(), "type": last.data_type()}
        """,
        model=STEP,
        x=X,
    )
    assert got["between"] == "webgpu" and got["host"] == "cpu"
    assert got["shape"] == [2, 4] and got["type"] == "tensor(float)"
    np.testing.assert_array_equal(got["y"], steps(X, 2))
    np.testing.assert_array_equal(got["mixed"], steps(X + 1, 1))
    assert "float[2,4]" in got["wrong"] and "float[5,4]" in got["wrong"]


TWICE = model([helper.make_node("Add", ["x", "z"], ["y"])], [3])


def test_ort_values__one_value_for_two_inputs__is_read_twice(python_in_browser: BrowserPython) -> None:
    proto = onnx.ModelProto.FromString(TWICE.tobytes())
    proto.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [3]))
    got = python_in_browser(
        """
        import numpy as np, pyruntime as ort
        session = ort.InferenceSession(bytes(model))
        value = ort.OrtValue.ortvalue_from_numpy(np.array([1, 2, 3], np.float32), "webgpu")
        session.run_with_ort_values(None, {"x": value, "z": value})[0].numpy()
        """,
        model=np.frombuffer(proto.SerializeToString(), np.uint8),
    )
    np.testing.assert_array_equal(got, [2, 4, 6])


def test_ort_values__shape_that_depends_on_a_value__is_read_back(python_in_browser: BrowserPython) -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["i"]), helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT)]
    got = python_in_browser(
        """
        import numpy as np, pyruntime as ort
        session = ort.InferenceSession(bytes(model))
        value = ort.OrtValue.ortvalue_from_numpy(np.array([0, 2, 0, 3], np.float32), "webgpu")
        (y,) = session.run_with_ort_values(None, {"x": value})
        {"y": y.numpy(), "where": y.device_name()}
        """,
        model=model(nodes, [4]),
    )
    np.testing.assert_array_equal(got["y"], [[1, 3]])
    assert got["where"] == "webgpu"


SWISH = model([helper.make_node("Swish2", ["x"], ["y"], "s", domain="my.domain", beta=2.0)], ["N", 4])
ROWS = model([helper.make_node("RowSum", ["x"], ["y"], "r", domain="my.domain")], ["N", 4])

OPERATORS = """
import numpy as np, pyruntime as ort

@ort.custom_op("my.domain", "Swish2")
class Swish2(ort.Op):
    beta: float = 1.0
    wgsl = "x / (1.0 + exp(-beta * x))"

@ort.custom_op("my.domain", "RowSum")
class RowSum(ort.Op):
    wgsl = '''
        struct Params { columns: u32, size: u32 }
        @compute @workgroup_size(64)
        fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
          if (gid.x >= params.size) { return; }
          var sum = 0.0;
          for (var c = 0u; c < params.columns; c++) { sum += load_x(gid.x * params.columns + c); }
          store_y(gid.x, sum);
        }'''
    def infer(self, x): return ort.TensorType(x.dtype, x.shape[:1])
    def params(self, x): return {"columns": x.shape[1]}
"""


def test_custom_op__elementwise_and_full_kernel__run_on_the_gpu(python_in_browser: BrowserPython) -> None:
    got = python_in_browser(
        OPERATORS
        + """
strict = ort.SessionOptions()
strict.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
swish = ort.InferenceSession(bytes(swish), strict)
rows = ort.InferenceSession(bytes(rows), strict)
{"swish": swish.run(None, {"x": x})[0], "rows": rows.run(None, {"x": x})[0], "explain": swish.explain()._repr_html_()}
""",
        swish=SWISH,
        rows=ROWS,
        x=X,
    )
    np.testing.assert_allclose(got["swish"], X / (1 + np.exp(-2 * X)), rtol=1e-5)
    np.testing.assert_allclose(got["rows"], X.sum(1), rtol=1e-6)
    assert "exp" in got["explain"] and "Swish2" in got["explain"] and "<svg" in got["explain"]


def test_custom_op__mistake_in_its_wgsl__is_shown_and_can_be_fixed(python_in_browser: BrowserPython) -> None:
    got = python_in_browser(
        OPERATORS
        + """
@ort.custom_op("my.domain", "Swish2")
class Swish2(ort.Op):
    beta: float = 1.0
    wgsl = "x * nonsense"
    def evaluate(self, x): return (x,)
try:
    ort.InferenceSession(bytes(swish)).run(None, {"x": x})
    message = ""
except ort.EngineError as error:
    message = str(error)
@ort.custom_op("my.domain", "Swish2")
class Swish2(ort.Op):
    beta: float = 1.0
    wgsl = "x * beta"
{"message": message, "y": ort.InferenceSession(bytes(swish)).run(None, {"x": x})[0]}
""",
        swish=SWISH,
        x=X,
    )
    assert "nonsense" in got["message"] and "WGSL line" in got["message"] and "\n  " in got["message"]
    assert "Swish2" in got["message"] and "^" in got["message"] and "@compute" in got["message"]
    np.testing.assert_array_equal(got["y"], 2 * X)


def test_gpu__own_kernel_on_an_ort_value__runs(python_in_browser: BrowserPython) -> None:
    got = python_in_browser(
        """
        import numpy as np, pyruntime as ort
        a = ort.OrtValue.ortvalue_from_numpy(x, "webgpu")
        b = ort.OrtValue.ortvalue_from_shape_and_type(x.shape, np.float32, "webgpu")
        ort.gpu.run('''
            struct Params { scale: f32 }
            // @group(0) @binding(0) var<storage, read_write> of another time
            @group(0) @binding(0) var<storage, read> a: array<f32>;
            @group(0) @binding(1) var<storage, read_write> b: array<f32>;
            @group(0) @binding(2) var<uniform> params: Params;
            @compute @workgroup_size(8)
            fn main(@builtin(global_invocation_id) gid: vec3<u32>) { b[gid.x] = params.scale * a[gid.x]; }
        ''', [a, b], (1,), np.float32(3).tobytes())
        {"b": b.numpy(), "size": int(ort.gpu.buffer(b).size), "limits": int(ort.gpu.device.limits.maxBufferSize)}
        """,
        x=X,
    )
    np.testing.assert_array_equal(got["b"], 3 * X)
    assert got["size"] >= X.nbytes and got["limits"] > 0


def test_constants__read_only_or_not__give_the_same_bits(python_in_browser: BrowserPython) -> None:
    """A product, a convolution and an addition by constants, one of them computed on the GPU, and by activations."""
    rng = np.random.default_rng(5)
    given = {
        "w": rng.normal(size=(160, 160)).astype(np.float32) / 12,
        "b": rng.normal(size=160).astype(np.float32),
        "k": rng.normal(size=(1, 1, 3, 3)).astype(np.float32),
        "picture": np.array([1, 1, 32, 160], np.int64),
        "rows": np.array([32, 160], np.int64),
    }
    nodes = [
        helper.make_node("Sigmoid", ["w"], ["v"]),
        helper.make_node("MatMul", ["x", "v"], ["h"]),
        helper.make_node("Add", ["h", "b"], ["s"]),
        helper.make_node("Reshape", ["s", "picture"], ["p"]),
        helper.make_node("Conv", ["p", "k"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Reshape", ["c", "rows"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["m"]),
        helper.make_node("Add", ["m", "x"], ["y"]),
    ]
    x = rng.normal(size=(32, 160)).astype(np.float32)
    got = python_in_browser(
        """
        import numpy as np, pyruntime as ort
        made, read = [], []
        for off in ("", "read_only_constants"):
            options = ort.SessionOptions()
            options.add_session_config_entry("pyruntime.disable", off)
            session = await ort.InferenceSession.create(bytes(model), options, ["WebGpuExecutionProvider"])
            made.append(session.run(None, {"x": x})[0])
            shaders = session._program.roots[-1].executable.plan.shaders
            read.append(sum("<storage, read>" in text for text in shaders))
        {"made": made, "read": read}
        """,
        model=model(nodes, [32, 160], given),
        x=x,
    )
    assert got["read"][0] >= 3 and got["read"][1] == 0
    np.testing.assert_array_equal(*got["made"])
    assert np.ptp(got["made"][0]) > 1


def test_profiling__in_the_browser__has_every_kernel(any_python: BrowserPython) -> None:
    got = any_python(
        """
        import json, numpy as np, pyruntime as ort
        options = ort.SessionOptions()
        options.enable_profiling = True
        session = ort.InferenceSession(bytes(model), options)
        y = session.run(None, {"x": x})[0]
        profile = session.profile({"x": x}, runs=2)
        with open(session.end_profiling()) as file:
            events = json.load(file)
        {"y": y, "profile": profile.to_dict(), "html": profile._repr_html_(), "events": events,
         "memory": session.memory_plan.to_dict(), "session": session._repr_html_()}
        """,
        model=STEP,
        x=X,
    )
    np.testing.assert_array_equal(got["y"], steps(X, 1))
    nodes = [e for e in got["events"] if e["cat"] == "Node"]
    kernels = [e for e in got["events"] if e["cat"] == "Kernel"]
    assert nodes and kernels and all(e["args"]["provider"] == "WebGpuExecutionProvider" for e in nodes)
    assert nodes[-1]["args"]["output_type_shape"] == [{"float": [2, 4]}]
    assert {r["where"] for r in got["profile"]["rows"]} == {"gpu"}
    assert {r["name"] for r in got["profile"]["rows"]} == {e["name"] for e in kernels}
    assert got["profile"]["clock"] in ("gpu", "host") and 'role="img"' in got["html"]
    # By the second, and not in billions; how many there are hangs on how busy the machine is.
    assert got["profile"]["ceilings"]["flops"] > 1e6 and got["profile"]["ceilings"]["bandwidth"] > 1e6
    assert all(0 <= r["of_peak"] <= 1 for r in got["profile"]["rows"] if r["ms"])
    assert got["memory"]["peak"] >= got["memory"]["lower_bound"] > 0
    assert "WebGpuExecutionProvider" in got["session"]


def test_profile__device_without_timestamps__uses_wall_time(python_in_browser: BrowserPython) -> None:
    got = python_in_browser(
        """
        import dataclasses, pyruntime as ort
        from pyruntime.session.environment import device
        session = ort.InferenceSession(bytes(model))
        gpu = await device()
        target, gpu.target = gpu.target, dataclasses.replace(gpu.target, features=frozenset())
        try:
            profile = session.profile({"x": x}, runs=2)
        finally:
            gpu.target = target
        {**profile.to_dict(), "dispatches": session.explain().dispatches, "text": str(profile)}
        """,
        model=STEP,
        x=X,
    )
    assert got["clock"] == "host" and "wall time" in got["text"]
    assert sum(r["calls"] for r in got["rows"]) == got["dispatches"]
    assert all(r["ms"] > 0 for r in got["rows"])


def test_run__function_comprehension_and_await__give_the_same(python_in_browser: BrowserPython) -> None:
    got = python_in_browser(
        """
        import numpy as np, pyruntime as ort
        session = ort.InferenceSession(bytes(model))
        def inside():
            return session.run(["y"], {"x": x})[0]
        called = []
        task = session.run_async(None, {"x": x}, lambda *result: called.append(result), "tag")
        await task
        {"function": inside(), "comprehension": [session.run(None, {"x": x + k})[0] for k in range(3)],
         "await": (await session.run_async(None, {"x": x}))[0], "callback": called[0][0][0], "rest": called[0][1:]}
        """,
        model=STEP,
        x=X,
    )
    for key in ("function", "await", "callback"):
        np.testing.assert_array_equal(got[key], steps(X, 1))
    for k, y in enumerate(got["comprehension"]):
        np.testing.assert_array_equal(y, steps(X + k, 1))
    assert list(got["rest"]) == ["tag", ""]


def test_run__called_synchronously_from_javascript__names_the_awaitable_form(
    python_in_browser: BrowserPython,
) -> None:
    got = python_in_browser(
        """
        import js, numpy as np, pyruntime as ort
        from pyodide.ffi import create_proxy
        session = ort.InferenceSession(bytes(model))
        value = ort.OrtValue.ortvalue_from_numpy(x, "webgpu")
        binding = session.io_binding()
        messages = []
        def attempt(*_):
            for call in (
                lambda: session.run(None, {"x": x}),
                lambda: value.numpy(),
                lambda: session.run_with_iobinding(binding),
                lambda: session.profile({"x": x}),
                lambda: ort.InferenceSession(bytes(model)),
            ):
                try:
                    call()
                except ort.RuntimeException as error:
                    messages.append(str(error))
        proxy = create_proxy(attempt)
        js.Array.of(1).forEach(proxy)
        proxy.destroy()
        messages
        """,
        model=STEP,
        x=X,
    )
    forms = ("session.run_async", "value.numpy_async", "run_with_iobinding_async", "profile_async", "create(")
    assert len(got) == len(forms)
    for message, form in zip(got, forms, strict=True):
        assert "await " in message and form in message


def test_map__async_for__runs_two_batches_at_a_time_in_order(python_in_browser: BrowserPython) -> None:
    got = python_in_browser(
        """
        import numpy as np, pyruntime as ort
        session = await ort.InferenceSession.create(bytes(model), providers=["WebGpuExecutionProvider"])
        batches = [{"x": x * n} for n in range(5)]
        await session.run_async(None, batches[0])
        asked, told, results = [], [], []
        def each():
            for n, feeds in enumerate(batches):
                asked.append((n, len(results)))
                yield feeds
        async for (y,) in session.map(each(), progress=lambda *counts: told.append(counts)):
            results.append(y)
        session.release()
        {"y": np.stack(results), "asked": np.array(asked), "told": np.array([n for n, _ in told])}
        """,
        model=STEP,
        x=X,
    )
    np.testing.assert_array_equal(got["y"], np.stack([steps(X * n, 1) for n in range(5)]))
    assert got["told"].tolist() == [1, 2, 3, 4, 5]
    # A batch is asked for before the results of the one before it have come.
    assert got["asked"].tolist() == [[0, 0], [1, 0], [2, 1], [3, 2], [4, 3]]
