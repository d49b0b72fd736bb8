"""The same calls on onnxruntime and on this package: results, types of exceptions, signatures."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import pyruntime
from tests.session.api.api_models import affine, changed

MODEL = affine().SerializeToString()
X = np.arange(6, dtype=np.float32).reshape(2, 3)
CPU = ["CPUExecutionProvider"]

Call = Callable[[ModuleType], Any]


def session(ort: ModuleType, options: Any = None) -> Any:
    return ort.InferenceSession(MODEL, options, providers=CPU)


def bound(ort: ModuleType) -> tuple[Any, Any]:
    made = session(ort)
    return made, made.io_binding()


def plain(value: Any) -> Any:
    """A result as something that can be compared."""
    if type(value).__name__ == "OrtValue":
        return value.data_type(), plain(value.numpy())
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.tolist()
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


def outcome(call: Call, ort: ModuleType) -> Any:
    """What the call gives: its result, or the name of the exception with the built-in class that it also is."""
    try:
        return plain(call(ort))
    except Exception as error:
        known = (ValueError, TypeError, RuntimeError, AttributeError)
        builtin = [c.__name__ for c in type(error).__mro__ if c in known]
        return "raises", builtin or [type(error).__name__]


def feeds(x: Any) -> Call:
    return lambda ort: session(ort).run(None, {"x": x})


def with_options(change: Callable[[Any], Any], use: Callable[[Any], Any]) -> Call:
    def call(ort: ModuleType) -> Any:
        options = ort.SessionOptions()
        change(options)
        return use(session(ort, options))

    return call


def binding(work: Callable[[ModuleType, Any, Any], Any]) -> Call:
    return lambda ort: work(ort, *bound(ort))


def into_ort_value(ort: ModuleType, made: Any, io: Any) -> Any:
    target = ort.OrtValue.ortvalue_from_shape_and_type([2, 2], np.float32)
    io.bind_cpu_input("x", X)
    io.bind_ortvalue_output("y", target)
    made.run_with_iobinding(io)
    return target


def into_pointer(ort: ModuleType, made: Any, io: Any) -> Any:
    y, x = np.zeros((2, 2), np.float32), X.copy()
    io.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    io.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    made.run_with_iobinding(io)
    return y


def run_bound(ort: ModuleType, made: Any, io: Any) -> Any:
    io.bind_cpu_input("x", X)
    io.bind_output("y")
    made.run_with_iobinding(io)
    return [io.copy_outputs_to_cpu(), io.get_outputs()]


def bound_twice(ort: ModuleType, made: Any, io: Any) -> Any:
    """Whether a second run leaves the outputs of the first as they are."""
    io.bind_output("y")
    io.bind_cpu_input("x", X)
    made.run_with_iobinding(io)
    first = io.get_outputs()[0]
    seen = first.numpy().copy()
    io.bind_cpu_input("x", X + 1)
    made.run_with_iobinding(io)
    return bool((first.numpy() == seen).all())


def drawn(seed: float | None) -> Call:
    """Whether two sessions draw the same numbers in their first runs, and two runs of a session."""
    given: dict[str, Any] = {} if seed is None else {"seed": seed}
    node = helper.make_node("RandomUniform", [], ["y"], shape=[8], **given)
    graph = helper.make_graph([node], "g", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()

    def call(ort: ModuleType) -> Any:
        first, second = (ort.InferenceSession(model, providers=CPU) for _ in range(2))
        one, other, again = (made.run(None, {})[0].tolist() for made in (first, second, first))
        return [one == other, one == again]

    return call


def wrong_target(shape: list[int], kind: Any) -> Callable[[ModuleType, Any, Any], Any]:
    def work(ort: ModuleType, made: Any, io: Any) -> Any:
        io.bind_cpu_input("x", X)
        io.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_shape_and_type(shape, kind))
        return made.run_with_iobinding(io)

    return work


def shared_memory(ort: ModuleType) -> Any:
    array = X.copy()
    value = ort.OrtValue.ortvalue_from_numpy(array)
    array[0] = 9
    seen = value.numpy().copy()
    value.update_inplace(np.zeros((2, 3), np.float32))
    return [seen, array, session(ort).run_with_ort_values(None, {"x": value})]


def terminated(ort: ModuleType) -> Any:
    options = ort.RunOptions()
    options.terminate = True
    return session(ort).run(None, {"x": X}, options)


def assignment(made: Any) -> Any:
    groups = made.get_provider_graph_assignment_info()
    return sorted({n.op_type for g in groups for n in g.get_nodes()}), {g.ep_name for g in groups}


def replaced_initializer(ort: ModuleType) -> Any:
    options, value = ort.SessionOptions(), ort.OrtValue.ortvalue_from_numpy(np.full((3, 2), 2, np.float32))
    options.add_initializer("w", value)
    return session(ort, options).run(None, {"x": X})


CALLS: dict[str, Call] = {
    "run": feeds(X),
    "run: output by name": lambda ort: session(ort).run(["y"], {"x": X}),
    "run: overridden initializer": lambda ort: session(ort).run(None, {"x": X, "b": np.ones(2, np.float32)}),
    "run: list": feeds(X.tolist()),
    "run: wrong type": feeds(X.astype(np.int32)),
    "run: wrong rank": feeds(X[0]),
    "run: wrong dimension": feeds(X[:, :2]),
    "run: no input": lambda ort: session(ort).run(None, {}),
    "run: unknown input": lambda ort: session(ort).run(None, {"x": X, "q": X}),
    "run: unknown output": lambda ort: session(ort).run(["q"], {"x": X}),
    "run: terminated": terminated,
    "run: OrtValue": lambda ort: session(ort).run(None, {"x": ort.OrtValue.ortvalue_from_numpy(X)}),
    "load: no file": lambda ort: ort.InferenceSession("there-is-no-such-file.onnx"),
    "load: not a model": lambda ort: ort.InferenceSession(b"not a model at all"),
    "load: a number": lambda ort: ort.InferenceSession(3),
    "metadata map": lambda ort: session(ort).get_modelmeta().custom_metadata_map,
    "ort value: kinds": lambda ort: [
        getattr(ort.OrtValue.ortvalue_from_numpy(X), f)() for f in ("is_tensor_sequence", "is_sparse_tensor")
    ],
    "providers": lambda ort: session(ort).get_providers(),
    "provider options": lambda ort: session(ort).get_provider_options(),
    "set_providers": lambda ort: session(ort).set_providers(CPU),
    "inputs": lambda ort: [[a.name, a.type, a.shape] for a in session(ort).get_inputs()],
    "inputs: text": lambda ort: str(session(ort).get_inputs()[0]),
    "outputs": lambda ort: [[a.name, a.type, a.shape] for a in session(ort).get_outputs()],
    "overridable": lambda ort: [[a.name, a.shape] for a in session(ort).get_overridable_initializers()],
    "free dimension by name": with_options(
        lambda o: o.add_free_dimension_override_by_name("N", 2),
        lambda s: [a.shape for a in (*s.get_inputs(), *s.get_outputs())],
    ),
    "free dimension by denotation": with_options(
        lambda o: o.add_free_dimension_override_by_denotation("DATA_BATCH", 2),
        lambda s: [a.shape for a in (*s.get_inputs(), *s.get_outputs())],
    ),
    "free dimension: other size": with_options(
        lambda o: o.add_free_dimension_override_by_name("N", 5), lambda s: s.run(None, {"x": X})
    ),
    "config entry": with_options(
        lambda o: o.add_session_config_entry("a", "b"), lambda s: s.get_session_options().get_session_config_entry("a")
    ),
    "config entry: missing": lambda ort: ort.SessionOptions().get_session_config_entry("zz"),
    "config entry of a run: missing": lambda ort: ort.RunOptions().get_run_config_entry("zz"),
    "initializer": replaced_initializer,
    "options: misspelt": lambda ort: setattr(ort.SessionOptions(), "enable_profilling", True),
    "options: wrong type": lambda ort: setattr(ort.SessionOptions(), "intra_op_num_threads", "many"),
    "assignment": with_options(
        lambda o: o.add_session_config_entry("session.record_ep_graph_assignment_info", "1"), lambda s: assignment(s)[1]
    ),
    "assignment: not recorded": lambda ort: session(ort).get_provider_graph_assignment_info(),
    "metadata": lambda ort: [
        getattr(session(ort).get_modelmeta(), k)
        for k in ("producer_name", "graph_name", "domain", "description", "graph_description", "version")
    ],
    "ort values": lambda ort: session(ort).run_with_ort_values(None, {"x": ort.OrtValue.ortvalue_from_numpy(X)}),
    "ort values: no input": lambda ort: session(ort).run_with_ort_values(["y"], {}),
    "ort value: facts": lambda ort: [
        getattr(ort.OrtValue.ortvalue_from_numpy(X), f)()
        for f in ("shape", "data_type", "element_type", "device_name", "is_tensor", "has_value", "tensor_size_in_bytes")
    ],
    "ort value: memory": shared_memory,
    "ort value: array": lambda ort: np.asarray(ort.OrtValue.ortvalue_from_numpy(X)),
    "ort value: int64": lambda ort: ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.int64).data_type(),
    "ort value: by number": lambda ort: ort.OrtValue.ortvalue_from_shape_and_type([2, 3], 16).data_type(),
    "ort value: bfloat16 bits": lambda ort: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(
        np.arange(3, dtype=np.uint16), 16
    ).data_type(),
    "ort value: wrong width": lambda ort: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(X, 16),
    "ort value: update, wrong shape": lambda ort: ort.OrtValue.ortvalue_from_numpy(X.copy()).update_inplace(X[:1]),
    "ort value: other device": lambda ort: ort.OrtValue.ortvalue_from_numpy(X, "cuda"),
    "binding": binding(run_bound),
    "binding: OrtValue": binding(into_ort_value),
    "binding: pointer": binding(into_pointer),
    "binding: unknown input": binding(lambda ort, s, io: io.bind_cpu_input("q", X)),
    "binding: nothing": binding(lambda ort, s, io: s.run_with_iobinding(io)),
    "binding: wrong shape": binding(wrong_target([5, 2], np.float32)),
    "binding: wrong type": binding(wrong_target([2, 2], np.int64)),
    "binding: not run": binding(lambda ort, s, io: io.copy_outputs_to_cpu()),
    "binding: foreign device": binding(lambda ort, s, io: io.bind_input("x", "cuda", 0, np.float32, X.shape, 1 << 20)),
    "profiling: off": lambda ort: session(ort).end_profiling(),
    "log severity": lambda ort: ort.set_default_logger_severity(2),
    "log severity: wrong": lambda ort: ort.set_default_logger_severity(9),
    "device": lambda ort: ort.get_device(),
    "collective": lambda ort: ort.has_collective_ops(),
    "level": lambda ort: [(k, int(v)) for k, v in ort.GraphOptimizationLevel.__members__.items()],
    "mode": lambda ort: [(k, int(v)) for k, v in ort.ExecutionMode.__members__.items()],
    "order": lambda ort: [(k, int(v)) for k, v in ort.ExecutionOrder.__members__.items()],
}


@pytest.mark.parametrize("name", CALLS)
def test_api__same_call__same_result_or_exception(name: str) -> None:
    assert outcome(CALLS[name], pyruntime) == outcome(CALLS[name], onnxruntime)


def dangling(model: Any) -> None:
    model.graph.node[2].input[0] = "missing"


def unknown(model: Any) -> None:
    model.graph.node[2].op_type = "Nonsense"


DIFFERENT: dict[str, tuple[Call, Any, Any]] = {
    "load: dangling input": (
        lambda ort: ort.InferenceSession(changed(dangling), providers=CPU),
        ("raises", ["InvalidGraph"]),
        ("raises", ["InvalidArgument"]),
    ),
    "load: unknown operator": (
        lambda ort: ort.InferenceSession(changed(unknown), providers=CPU),
        ("raises", ["NotImplemented"]),
        ("raises", ["InvalidGraph"]),
    ),
    "load: bytearray": (
        lambda ort: ort.InferenceSession(bytearray(MODEL), providers=CPU).get_providers(),
        CPU,
        ("raises", ["TypeError"]),
    ),
    "binding: unknown output": (
        binding(lambda ort, s, io: io.bind_output("q")),
        ("raises", ["RuntimeError"]),
        None,
    ),
    "binding: outputs of two runs": (binding(bound_twice), True, False),
    "random: no seed": (drawn(None), [False, False], [True, False]),
    "random: a seed": (drawn(3.0), [True, True], [True, False]),
    "ort value: strings": (
        lambda ort: ort.OrtValue.ortvalue_from_numpy(np.array(["a"])).data_type(),
        "tensor(string)",
        ("raises", ["RuntimeError"]),
    ),
}
"""Call, what it gives here, what it gives in onnxruntime: the list of docs/DIFFERENCES.md as far as calls show it."""


@pytest.mark.parametrize("name", DIFFERENT)
def test_api__documented_difference__is_as_documented(name: str) -> None:
    call, ours, theirs = DIFFERENT[name]
    assert (outcome(call, pyruntime), outcome(call, onnxruntime)) == (ours, theirs)


ABSENT = {"get_input_epdevices", "as_sparse_tensor", "ort_value_from_sparse_tensor"}
"""Methods of onnxruntime that are not here: docs/DIFFERENCES.md says why."""


@pytest.mark.parametrize("name", ["InferenceSession", "OrtValue", "IOBinding"])
def test_api__methods__have_the_parameters_of_onnxruntime(name: str) -> None:
    theirs, ours = getattr(onnxruntime, name), getattr(pyruntime, name)
    methods = {m for m in dir(theirs) if not m.startswith("_")}
    assert methods - set(dir(ours)) == methods & ABSENT
    for method in sorted(methods - ABSENT):
        expected = list(inspect.signature(getattr(theirs, method)).parameters)
        assert list(inspect.signature(getattr(ours, method)).parameters)[: len(expected)] == expected, method


OPTION_ABSENT = {
    "add_provider_for_devices", "clear_ep_context_data_read_func", "register_custom_ops_library",
    "set_ep_context_data_read_func", "set_provider_selection_policy", "set_provider_selection_policy_delegate",
    "add_active_adapter",
}  # fmt: skip

MODULE_ABSENT = {
    # LoRA adapters, compiled models and model packages of onnxruntime's own formats
    "AdapterFormat", "LoraAdapter", "ModelCompiler", "ModelPackage", "ModelPackageComponentContext",
    "ModelPackageContext", "ModelPackageOptions", "ModelPackageWriteMode", "OrtCompileApiFlags", "OrtEpContextData",
    "OrtEpContextDataBuffer", "OrtExternalInitializerInfo",
    # devices that plug-in providers bring, and their allocators and streams
    "OrtArenaCfg", "OrtEpDevice", "OrtExecutionProviderDevicePolicy", "OrtHardwareDevice", "OrtHardwareDeviceType",
    "OrtSyncStream", "create_and_register_allocator", "create_and_register_allocator_v2", "get_ep_devices",
    "register_execution_provider_library", "unregister_execution_provider_library", "preload_dlls",
    # sparse tensors
    "OrtSparseFormat", "SparseTensor",
    # what its package is made of
    "contextlib", "cuda_version", "import_capi_exception", "onnxruntime_validation", "package_name",
    "print_debug_info", "version",
}  # fmt: skip


def test_api__module__has_the_names_of_onnxruntime() -> None:
    theirs = {name for name in dir(onnxruntime) if not name.startswith("_")}
    tools = {"quantization", "tools", "transformers"}  # packages that other tests may have imported
    assert {name for name in theirs - tools if not hasattr(pyruntime, name)} == theirs & MODULE_ABSENT


@pytest.mark.parametrize("name", ["SessionOptions", "RunOptions", "NodeArg", "ModelMetadata"])
def test_api__attributes__are_those_of_onnxruntime(name: str) -> None:
    theirs = {m for m in dir(getattr(onnxruntime, name)) if not m.startswith("_")}
    made = getattr(pyruntime, name)() if name.endswith("Options") else getattr(pyruntime, name)
    assert theirs - set(dir(made)) == theirs & OPTION_ABSENT


def test_options__defaults__are_those_of_onnxruntime() -> None:
    for name in ("SessionOptions", "RunOptions"):
        theirs, ours = getattr(onnxruntime, name)(), getattr(pyruntime, name)()
        values = {k: getattr(theirs, k) for k in dir(theirs) if not k.startswith("_")}
        for key, value in values.items():
            if not callable(value):
                mine = getattr(ours, key)
                assert (
                    (int(mine), str(type(mine).__name__)) == (int(value), type(value).__name__)
                    if hasattr(value, "value")
                    else mine == value
                ), key


def test_exceptions__names__are_those_of_onnxruntime() -> None:
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    names = {n for n, c in vars(state).items() if isinstance(c, type) and issubclass(c, Exception)}
    assert names - set(pyruntime.errors.__all__) == {"DeviceReset"}


def test_profile__trace__has_the_events_of_onnxruntime(tmp_path: Path) -> None:
    events = {}
    for ort in (onnxruntime, pyruntime):
        options = ort.SessionOptions()
        options.enable_profiling = True
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.profile_file_prefix = str(tmp_path / ort.__name__)
        made = session(ort, options)
        made.run(None, {"x": X})
        assert made.get_profiling_start_time_ns() > 0
        with open(made.end_profiling(), encoding="utf-8") as file:
            events[ort] = [e for e in json.load(file) if e["cat"] == "Node"]
    keys = ("name", "ph")
    arguments = ("op_name", "provider", "node_index", "output_type_shape", "output_size")
    theirs, ours = ([{k: e[k] for k in keys} | {k: e["args"][k] for k in arguments} for e in events[o]] for o in events)
    assert ours == theirs
    assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in events[pyruntime])


def test_module__names__are_pinned() -> None:
    assert pyruntime.__all__ == sorted(pyruntime.__all__)
    assert all(getattr(pyruntime, name) is not None for name in pyruntime.__all__)
    assert len(pyruntime.__all__) == 64, "a public name came or went: say so in CHANGELOG.md and change this number"
