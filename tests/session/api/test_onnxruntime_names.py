"""Names that scripts for onnxruntime 1.32 use: the same calls on both, results and warnings compared."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import pyruntime
from tests.session.api.test_api_differential import outcome

node = helper.make_node
CPU = ["CPUExecutionProvider"]


def model_of(nodes: list[Any], inputs: list[str], outputs: list[str]) -> bytes:
    def values(names: list[str]) -> list[Any]:
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in names]

    graph = helper.make_graph(nodes, "g", values(inputs), values(outputs))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return bytes(made.SerializeToString())


RELU = model_of([node("Relu", ["x"], ["y"])], ["x"], ["y"])
X = np.array([-1, 2], np.float32)


def session(ort: ModuleType) -> Any:
    return ort.InferenceSession(RELU, providers=CPU)


def capi(ort: ModuleType) -> Any:
    import importlib

    return importlib.import_module(f"{ort.__name__}.capi.onnxruntime_pybind11_state")


def backend(ort: ModuleType) -> Any:
    import importlib

    return importlib.import_module(f"{ort.__name__}.backend")


def value(ort: ModuleType, array: Any = X) -> Any:
    return ort.OrtValue.ortvalue_from_numpy(np.array(array))


def by_vector(ort: ModuleType) -> Any:
    state = capi(ort)
    feeds, fetches = state.OrtValueVector(), state.OrtValueVector()
    given = value(ort)
    feeds.push_back(getattr(given, "_ortvalue", given))
    host = state.OrtDevice(state.OrtDevice.cpu(), state.OrtDevice.default_memory(), 0)
    done = session(ort).run_with_ortvaluevector(ort.RunOptions(), ["x"], feeds, ["y"], fetches, [host])
    return done, len(fetches), fetches[0].numpy().tolist(), fetches.element_type_at(0)


def device(ort: ModuleType, *given: Any) -> list[int]:
    made = ort.OrtDevice.make(*given)
    return [made.device_id(), made.device_type(), int(made.device_vendor_id()), int(made.device_mem_type())]


def memory(ort: ModuleType) -> list[Any]:
    made = session(ort)
    infos = [*made.get_input_memory_infos(), *made.get_output_memory_infos()]
    parts = ("allocator_type", "mem_type", "device_mem_type", "device_vendor_id", "device_id")
    return [[info.name, *(int(getattr(info, part)) for part in parts)] for info in infos]


def shared_by_dlpack(ort: ModuleType) -> list[float]:
    array = np.arange(3, dtype=np.float32)
    made = ort.OrtValue.from_dlpack(array)
    array[0] = 9
    return made.numpy().tolist()  # type: ignore[no-any-return]


def provided(ort: ModuleType, name: str) -> list[Any]:
    options = ort.SessionOptions()
    before = options.has_providers()
    options.add_provider(name, {})
    return [before, options.has_providers(), ort.InferenceSession(RELU, options).get_providers()]


def copied(ort: ModuleType) -> list[float]:
    target = value(ort, np.zeros(2, np.float32))
    target.update_inplace(value(ort))
    return target.numpy().tolist()  # type: ignore[no-any-return]


def other_binding(ort: ModuleType) -> None:
    session(ort).run_with_iobinding(session(ort).io_binding())


def enums(ort: ModuleType) -> list[Any]:
    names = ("OrtAllocatorType", "OrtMemType", "OrtDeviceMemoryType", "OrtDeviceVendorId", "OrtMemoryInfoDeviceType")
    return [sorted((key, int(member)) for key, member in getattr(ort, name).__members__.items()) for name in names]


CALLS: dict[str, Callable[[ModuleType], Any]] = {
    "vector": by_vector,
    "device: cpu": lambda ort: device(ort, "cpu", 0),
    "device: webgpu": lambda ort: device(ort, "webgpu", 0),
    "device: vendor": lambda ort: device(ort, "gpu", 1, 0x10DE),
    "device: cuda": lambda ort: device(ort, "cuda", 2),
    "memory infos": memory,
    "enumerations": enums,
    "memory info": lambda ort: (
        ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT).name
    ),
    "value: created": lambda ort: session(ort).create_ortvalue_from_shape_and_type([2], np.int64, "cpu").data_type(),
    "value: created by number": lambda ort: (
        session(ort).create_ortvalue_from_shape_and_type([2], TensorProto.BFLOAT16, "cpu").data_type()
    ),
    "value: created of strings": lambda ort: session(ort).create_ortvalue_from_shape_and_type([2], np.str_, "cpu"),
    "value: created with a dimension below 0": lambda ort: session(ort).create_ortvalue_from_shape_and_type(
        [-1], np.float32, "cpu"
    ),
    "value: updated by a value": copied,
    "value: updated by a list": lambda ort: value(ort).update_inplace([1, 2]),
    "dlpack: device": lambda ort: value(ort).__dlpack_device__(),
    "dlpack: to NumPy": lambda ort: np.from_dlpack(value(ort)),
    "dlpack: bool": lambda ort: np.from_dlpack(value(ort, [True, False])),
    "dlpack: from a capsule": lambda ort: ort.OrtValue.from_dlpack(value(ort).__dlpack__()).numpy(),
    "dlpack: shares": shared_by_dlpack,
    "dlpack: neither": lambda ort: ort.OrtValue.from_dlpack(3),
    "provider: CPU": lambda ort: provided(ort, CPU[0]),
    "provider: unknown": lambda ort: provided(ort, "FooExecutionProvider"),
    "provider: of another platform": lambda ort: provided(ort, "CUDAExecutionProvider"),
    "provider: a number": lambda ort: ort.SessionOptions().add_provider(3, {}),
    "provider: an option that is a number": lambda ort: ort.SessionOptions().add_provider(CPU[0], {"a": 1}),
    "dlpack: types": lambda ort: [
        np.from_dlpack(value(ort, np.ones(2, kind))).dtype.name for kind in (np.int8, np.uint64, np.float16, np.float64)
    ],
    "dlpack: a scalar and no elements": lambda ort: [
        np.from_dlpack(value(ort, x)).shape for x in (np.float32(3), np.zeros((0, 3), np.float32))
    ],
    "fallback": lambda ort: [session(ort).disable_fallback(), session(ort).enable_fallback()],
    "tuning results": lambda ort: [session(ort).get_tuning_results(), session(ort).set_tuning_results([])],
    "dynamic options": lambda ort: session(ort).set_ep_dynamic_options({"a": "b"}),
    "dynamic options: none": lambda ort: session(ort).set_ep_dynamic_options({}),
    "captured graph": lambda ort: session(ort).release_captured_graph(),
    "binding of another session": other_binding,
    "seed: no integer": lambda ort: ort.set_seed(1.5),
    "set_providers: unknown": lambda ort: session(ort).set_providers(["FooExecutionProvider", CPU[0]]),
    "session: unknown, no fallback": lambda ort: ort.InferenceSession(
        RELU, providers=["FooExecutionProvider"], enable_fallback=0
    ),
    "session: malformed, no fallback": lambda ort: ort.InferenceSession(RELU, providers=[1], enable_fallback=0),
    "backend: supports_device": lambda ort: [backend(ort).supports_device(d) for d in ("CPU", "CUDA", "GPU", "TPU")],
    "backend: is_compatible": lambda ort: [backend(ort).is_compatible(None), backend(ort).is_compatible(None, "GPU")],
    "backend: run": lambda ort: backend(ort).run(RELU, [X]),
    "backend: prepared": lambda ort: backend(ort).prepare(RELU, "CPU").run(X),
    "backend: prepared twice": lambda ort: backend(ort).prepare(backend(ort).prepare(session(ort))).run([X]),
    "backend: other device": lambda ort: backend(ort).prepare(RELU, "CUDA"),
    "backend: option": lambda ort: backend(ort).prepare(RELU, logid="a", unknown=1).run([X], logid="b", unknown=2),
    "backend: option that is not permitted": lambda ort: backend(ort).prepare(RELU, enable_profiling=True),
    "backend: run option that is not permitted": lambda ort: backend(ort).prepare(RELU).run([X], terminate=True),
    "backend: node": lambda ort: backend(ort).backend.OnnxRuntimeBackend.run_node(None, [X]),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", CALLS)
def test_names__same_call__same_result_or_exception(name: str) -> None:
    assert outcome(CALLS[name], pyruntime) == outcome(CALLS[name], onnxruntime)


PROVIDERS: dict[str, Any] = {
    "none": None,
    "empty": [],
    "unknown, then CPU": ["FooExecutionProvider", *CPU],
    "unknown alone": ["FooExecutionProvider"],
    "of another platform, then CPU": ["CUDAExecutionProvider", *CPU],
    "of another platform alone": ["CUDAExecutionProvider"],
    "with options": [("CUDAExecutionProvider", {"device_id": 1}), *CPU],
    "twice": CPU * 2,
    "malformed": [1],
}


@pytest.mark.parametrize("name", PROVIDERS)
def test_providers__named__the_next_one_that_is_available_with_a_warning(name: str) -> None:
    found = {}
    for library in (pyruntime, onnxruntime):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made = library.InferenceSession(RELU, providers=PROVIDERS[name])
        said = [str(warning.message).split("'")[1] for warning in caught if "rovider '" in str(warning.message)]
        found[library] = made.get_providers(), said, made.run(None, {"x": X})[0].tolist()
    assert found[pyruntime] == found[onnxruntime]


def test_providers__of_options_and_of_the_session__those_of_the_session_with_a_warning() -> None:
    for library in (pyruntime, onnxruntime):
        options = library.SessionOptions()
        options.add_provider(CPU[0], {})
        with pytest.warns(UserWarning, match="SessionOptions has already been configured"):
            library.InferenceSession(RELU, options, providers=CPU)


RANDOM = model_of(
    [
        node("RandomNormal", [], ["a"], shape=[3]),
        node("RandomUniform", [], ["b"], shape=[3]),
        node("RandomUniform", [], ["c"], shape=[3]),
        node("RandomNormal", [], ["d"], shape=[3], seed=4.0),
    ],
    [],
    ["a", "b", "c", "d"],
)


def test_set_seed__sessions_made_after_it__draw_the_same_numbers_and_others_in_each_run() -> None:
    """In a process of its own, as there is no way back to unknown numbers."""
    script = f"""
import importlib, sys
ort = importlib.import_module(sys.argv[1])
make = lambda: ort.InferenceSession({RANDOM!r}, providers=["CPUExecutionProvider"])
def run(session): return [y.tolist() for y in session.run(None, {{}})[:3]]
ort.set_seed(7)
first, second = make(), make()
runs = [run(first), run(first)]
assert runs[0] != runs[1]
assert len({{str(y) for y in (*runs[0], *runs[1])}}) == 6
assert runs == [run(second), run(second)]
ort.set_seed(7)
third = make()
ort.set_seed(8)
assert run(third) == runs[0]
assert run(make()) != runs[0]
"""
    for library in ("onnxruntime", "pyruntime"):
        done = subprocess.run([sys.executable, "-c", script, library], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr


def test_logger_callback__messages__come_with_severity_until_it_is_taken_away() -> None:
    from pyruntime.session.log import logger

    told: list[tuple[int, str]] = []
    level = logger.level
    try:
        pyruntime.set_default_logger_callback(lambda severity, *rest: told.append((severity, rest[-1])), 1)
        logger.info("one")
        logger.debug("two")
        logger.error("three")
        pyruntime.set_default_logger_callback(None)
        logger.error("four")
    finally:
        logger.setLevel(level)
    assert told == [(1, "one"), (3, "three")]
    with pytest.raises(RuntimeError, match="severity"):
        pyruntime.set_default_logger_callback(None, 9)
