"""Kernels that need shader-f16, in Firefox: Mesa's lavapipe has it, and SwiftShader, Chromium's processor, has not.

float16 results are compared with NumPy in float64 to RELATIVE, a float16's unit in the last place, and ABSOLUTE; with
float16 read by the device and bit by bit they have equal bits.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from e2e.harness.bidi import Session
from e2e.harness.firefox import Firefox, launch
from e2e.harness.gpu import Gpu
from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Limits, Target, inp, out
from pyruntime.kernels.attention.attention import LARGE, SMALL, Tile, attend
from pyruntime.kernels.attention.description import AttentionForm, AttentionTensors, HeadView, Reach
from pyruntime.kernels.ir.kernel import Binding, Kernel
from pyruntime.kernels.legalize import legalize
from pyruntime.ops.base import Op
from pyruntime.ops.registry import newest
from pyruntime.session.aot.compile_ahead import compile_model
from pyruntime.target import SHADER_F16, SOFTWARE_ADAPTER
from tests.half_models import attention, attention_in_float64, feeds
from tests.harness import run_op, typed
from tests.kernels.variant_cases import CASES, runnable, target_of
from tools.devkit.firefox import VARIABLE, ensure_firefox

RELATIVE = 2.0**-10
ABSOLUTE = 2.0**-13
VARIANTS = [name for name, case in CASES.items() if case.features == {SHADER_F16}]


@pytest.fixture(scope="module")
def firefox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    executable = ensure_firefox()
    if executable is None:
        pytest.skip(f"there is no Firefox here: install one, or set {VARIABLE} to one")
    with launch(executable, tmp_path_factory.mktemp("firefox")) as session:
        yield session


@pytest.fixture(scope="module")
def gpu(firefox: Session) -> Iterator[Gpu]:
    try:
        made = Gpu(Firefox(firefox))
    except LookupError as missing:
        pytest.skip(str(missing))
    if SHADER_F16 not in made.target.features:
        pytest.skip(f"the adapter of this Firefox has no {SHADER_F16}: a Vulkan driver is missing, or is old")
    yield made
    made.close()


def both_ways(gpu: Gpu, variant: str, run: Callable[[], list[Array]]) -> list[list[Array]]:
    """What `run` gives with the variant, and without."""
    found, plain = [], gpu.target
    try:
        for off in ((), (variant,)):
            gpu.target = replace(plain, disabled=frozenset(off))
            found.append(run())
    finally:
        gpu.target = plain
    return found


@pytest.fixture
def page(firefox: Session, gpu: Gpu, site_url: str) -> Iterator[Session]:
    """A page of the site's, with an adapter that has shader-f16; complaints of its console fail the test."""
    firefox.complaints.clear()
    firefox.goto(f"{site_url}e2e/blank.html")
    yield firefox
    assert not firefox.complaints


@pytest.mark.parametrize("name", VARIANTS)
def test_variant__switched_off__results_are_equal(gpu: Gpu, name: str) -> None:
    case, given, found = CASES[name], gpu.target, []
    try:
        for disabled in ((), (name,)):
            gpu.target = target_of(given, case, *disabled)
            assert case.uses(runnable(gpu.target, case, [typed(x) for x in case.inputs()])) == (not disabled)
            found.append(run_op(case.op, case.inputs(), gpu))
    finally:
        gpu.target = given
    for on, off in zip(*found, strict=True):
        np.testing.assert_allclose(off, on, case.tolerance, case.tolerance)


READING = {
    "four at a time": "let v = load4_x(gid.x); store4_y(gid.x, v[0], v[1], v[2], v[3]);",
    "one at a time": "for (var c = 0u; c < 4u; c++) { store_y(4u * gid.x + c, load_x(4u * gid.x + c)); }",
}


@pytest.mark.parametrize("name", READING)
def test_conversion__every_float16__is_numpys(gpu: Gpu, name: str) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    given, made = TensorType(DType.FLOAT16, x.shape), TensorType(DType.FLOAT, x.shape)
    body = f"@compute @workgroup_size(64)\nfn main(@builtin(global_invocation_id) gid: vec3<u32>) {{ {READING[name]} }}"
    kernel = Kernel("widen", body, (Binding("x", DType.FLOAT16), Binding("y", DType.FLOAT, True)))
    dispatch = Dispatch(kernel, (inp(0, given), out(0, made)), (x.size // 256, 1, 1))
    with np.errstate(invalid="ignore"):
        expected = x.astype(np.float32)
    numbers = ~np.isnan(expected)
    assert legalize(gpu.target, [dispatch])[0].kernel.converts
    for (found,) in both_ways(gpu, "half_loads", lambda: gpu.run([dispatch], [x], [given], [made])):
        np.testing.assert_array_equal(found[numbers].view(np.uint32), expected[numbers].view(np.uint32))
        assert np.isnan(found[~numbers]).all()


def halves(*shape: int, seed: int = 0) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) / 2).astype(np.float16)


def softmax(x: Array) -> Array:
    raised = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(raised / raised.sum(-1, keepdims=True))


def normed(x: Array, scale: Array, shift: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return np.asarray(centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + shift)


OPERATORS: dict[str, tuple[Op, tuple[Array, ...], Callable[..., Array]]] = {
    "matmul, tiled": (newest("MatMul"), (halves(37, 68), halves(68, 44)), np.matmul),
    "matmul, tiled, odd": (newest("MatMul"), (halves(37, 67), halves(67, 43)), np.matmul),
    "matmul, skinny": (newest("MatMul"), (halves(3, 131), halves(131, 41)), np.matmul),
    "softmax": (newest("Softmax"), (halves(7, 301),), softmax),
    "layer norm": (newest("LayerNormalization"), (halves(5, 99), halves(99), halves(99, seed=1)), normed),
    "add, broadcast": (newest("Add"), (halves(3, 1, 5), halves(7, 1)), np.add),
    "sum": (newest("ReduceSum", keepdims=0), (halves(3, 333),), lambda x: np.asarray(x.sum())),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operator__float16__is_that_of_float64_and_the_same_without_conversions(gpu: Gpu, name: str) -> None:
    op, inputs, oracle = OPERATORS[name]
    (on,), (off,) = both_ways(gpu, "half_loads", lambda: run_op(op, list(inputs), gpu))
    np.testing.assert_array_equal(on, off)
    np.testing.assert_allclose(on, oracle(*(x.astype(np.float64) for x in inputs)), RELATIVE, ABSOLUTE)


ATTENTIONS: dict[str, tuple[Tile, tuple[int, int, int, int, int, int], int, Reach, float, type]] = {
    "64 queries": (LARGE, (1, 2, 70, 45, 64, 64), 1, Reach(), 1.0, np.float16),
    "32 queries, heads of 128 in groups": (SMALL, (1, 4, 40, 70, 128, 128), 2, Reach(), 1.0, np.float32),
    "odd components, shares of the keys": (
        replace(SMALL, splits=2),
        (2, 1, 33, 70, 33, 18),
        1,
        Reach(),
        1.0,
        np.float16,
    ),
    "a window": (SMALL, (1, 2, 50, 50, 32, 32), 1, Reach(before=9, after=0), 1.0, np.float32),
    "scores beyond float16": (SMALL, (1, 1, 32, 40, 64, 64), 1, Reach(), 200.0, np.float16),
}
"""Tile, sizes, heads in a group, keys in reach, what queries and keys are multiplied by, the type of queries."""


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention__tiles_of_float16__are_those_of_float64(gpu: Gpu, name: str) -> None:
    tile, sizes, group, reach, factor, kind = ATTENTIONS[name]
    batch, heads, queries, keys, size, v_size = sizes
    shapes = ((heads, queries, size), (heads // group, keys, size), (heads // group, keys, v_size))
    q, k, v = (halves(batch, *s, seed=i) for i, s in enumerate(shapes))
    q, k = (q * np.float16(factor)).astype(kind) + kind(1e-4), k * np.float16(factor)
    scale = 0.11 / factor**2
    y = TensorType(DType.FLOAT16, (batch, heads, queries, v_size))
    views = whole(q), whole(k), whole(v), whole(np.empty(y.shape))
    made = AttentionForm(sizes, *views, scale, False, group, reach=reach)
    types = [TensorType(DType.from_numpy(x.dtype), x.shape) for x in (q, k, v)]
    tensors = AttentionTensors(inp(0, types[0]), inp(1, types[1]), inp(2, types[2]), out(0, y))
    target = replace(gpu.target, limits=Limits(storage_buffers=10, workgroup_bytes=32768))
    dispatches = attend(target, made, tensors, replace(tile, half=True))
    assert "enable f16;" in dispatches[0].kernel.wgsl()
    (found,) = gpu.run(dispatches, [q, k, v], types, [y])

    wide = [np.repeat(x.astype(np.float64), r, 1) for x, r in ((q, 1), (k, group), (v, group))]
    scores = scale * wide[0] @ wide[1].swapaxes(-1, -2)
    if not reach.is_all:
        distance = np.arange(queries)[:, None] - np.arange(keys)
        scores = np.where((distance >= 0) & (distance <= reach.before), scores, -np.inf)
    assert abs(scores / scale).max() > 65504 or factor == 1.0
    np.testing.assert_allclose(found, softmax(scores) @ wide[2], RELATIVE, ABSOLUTE)


def whole(x: Array) -> HeadView:
    """A tensor as it is."""
    steps = (np.array(x.strides) // x.itemsize).tolist()
    return HeadView(0, (steps[0], steps[1], steps[2], steps[3]))


RUN = """
const { InferenceSession, Tensor } = await import('/src/web/pyruntime.js');
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const said = [];
const info = console.info;
console.info = (text) => { said.push(String(text)); info(text); };
const given = plan ? { ...options, plan: bytes(plan).buffer } : options;
const session = await InferenceSession.create(new Blob([bytes(model)]), given);
const feeds = Object.fromEntries(Object.entries(inputs).map(
  ([name, [data, dims]]) => [name, new Tensor('float32', new Float32Array(bytes(data).buffer), dims)]));
const { data } = (await session.run(feeds)).y;
const shaders = plan ? [] : (await session.explain()).kernels.map((kernel) => kernel.wgsl);
await session.release();
return { y: [...data], said, shaders };
"""


def run_session(page: Session, options: dict[str, Any], plan: bytes = b"") -> tuple[Array, list[str], list[str]]:
    """The model's output, what was said on the way, and the shaders of a session that Python planned."""
    inputs = {name: [base64.b64encode(x.tobytes()).decode(), list(x.shape)] for name, x in feeds().items()}
    model, text = (base64.b64encode(data).decode() for data in (attention().SerializeToString(), plan))
    found = page.evaluate(RUN, model=model, plan=text, inputs=inputs, options=options)
    return np.reshape(np.array(found["y"], np.float32), feeds()["q"].shape), found["said"], found["shaders"]


@pytest.mark.parametrize("feature", [SHADER_F16, SOFTWARE_ADAPTER])
def test_compiled_plan__for_what_the_adapter_has__runs_without_python(
    page: Session, tmp_path: Path, feature: str
) -> None:
    path = tmp_path / "half.onnx"
    path.write_bytes(attention().SerializeToString())
    plan = compile_model(path, target=Target(Limits(workgroup_bytes=32768), frozenset({feature})))
    found, said, _ = run_session(page, {}, plan)
    assert said == []
    np.testing.assert_allclose(found, attention_in_float64(**feeds()), RELATIVE, ABSOLUTE)


@pytest.mark.parametrize("off", ["", "software", "software,half_loads,attention_half"])
def test_session__python_plans__uses_what_the_adapter_has(page: Session, off: str) -> None:
    """A software adapter has kernels of its own, without float16; switched off, it is a GPU with shader-f16."""
    extra = {"pyruntime.disable": off, "pyruntime.rates": "assumed"}
    found, _, shaders = run_session(page, {"executionProviders": ["webgpu"], "extra": extra})
    assert any("enable f16;" in text for text in shaders) == (off == "software")
    assert any("unpack2x16float" in text for text in shaders) == (off == "software")
    assert any("attention_rows" in text for text in shaders) == (off == "")
    np.testing.assert_allclose(found, attention_in_float64(**feeds()), RELATIVE, ABSOLUTE)
