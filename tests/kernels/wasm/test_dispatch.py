"""WGSL as WebAssembly: what a kernel stores, computed by hand or by NumPy."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pyruntime.kernels.wasm import RESERVED, Dispatch, Unsupported, compile_dispatch, module
from pyruntime.kernels.wasm.parser import parse
from tests.wasm import Host

AT = RESERVED + 4096
KERNEL = """
@group(0) @binding(0) var<storage, read_write> y: array<{kind}>;
@group(0) @binding(1) var<uniform> params: Params;
struct Params {{ n: u32, f: f32, v: vec4<u32>, rows: array<vec4<u32>, 2>, i: i32 }}
{more}
@compute @workgroup_size({size})
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {{
  let i = gid.x;
  {body}
}}
"""
PARAMS = struct.pack("<If8x4I8Ii12x", 7, 0.5, 1, 2, 3, 4, *range(10, 18), -3)


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    if shutil.which("node") is None:
        pytest.skip("needs Node")
    made = Host()
    made.grow(AT + 65536)
    yield made
    made.close()


def run(host: Host, body: str, kind: str = "f32", count: int = 1, more: str = "", size: int = 1) -> Any:
    """What a kernel with this body stores in y."""
    text = KERNEL.format(kind=kind, more=more, size=size, body=body)
    compiled = compile_dispatch(Dispatch(text, [AT], PARAMS, (count // size, 1, 1), RESERVED))
    number = host.load(module([("run", [compiled.body], [0])], 1))
    dtype = {"f32": np.float32, "i32": np.int32, "u32": np.uint32}[kind.removeprefix("vec4<").rstrip(">")]
    words = count * (4 if kind.startswith("vec4") else 1)
    host.write(AT, bytes(4 * words), 0, 4 * words)
    host.run(number, ["run"])
    host.drop(number)
    return np.frombuffer(host.read(AT, 4 * words), dtype).tolist()


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("params.n / (params.n - 7u)", 7),  # WGSL: x / 0 is x
        ("params.n % (i - i)", 0),
        ("(i + 7u) / (i + 0u)", 7),
        ("(i + 5u) % (i + 3u)", 2),
        ("(i - 1u) >> 28u", 15),
        ("1u << (i + 33u)", 2),
        ("u32(f32(i) - 1.5)", 0),
        ("u32(5e9 * f32(i + 1u))", 0xFFFFFFFF),
        ("u32(params.i)", 0xFFFFFFFD),
        ("params.v.z + params.rows[1].x + params.rows[0][1]", 3 + 14 + 11),
        ("dot(params.v, params.rows[0])", 10 + 22 + 36 + 52),
        ("extractBits(0xabcd1234u + i, 8u, 12u)", 0xD12),
        ("countLeadingZeros(i + 1u)", 31),
        ("firstLeadingBit(i)", 0xFFFFFFFF),
        ("firstTrailingBit(i + 8u)", 3),
        ("select(1u, 2u, i == 0u && params.n > 6u || false)", 2),
        ("bitcast<u32>(f32(i) + 1.0)", 0x3F800000),
        ("pack2x16float(vec2<f32>(1.0, f32(i) - 2.0))", 0xC0003C00),
        ("min(i, 3u) + max(i, 3u) + clamp(i + 9u, 1u, 4u)", 7),
        ("u32(all(vec4<u32>(i) < vec4<u32>(1u))) + u32(any(vec3<u32>(i) > vec3<u32>(1u)))", 1),
    ],
)
def test_kernel__unsigned_integers__as_wgsl_says(host: Host, expression: str, expected: int) -> None:
    assert run(host, f"y[i] = {expression};", "u32") == [expected], "i is known"
    assert run(host, f"y[i] = {expression};", "u32", 2)[0] == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("params.i / 2", -1),
        ("params.i % 2", -1),
        ("(i32(i) - 7) / (i32(i) - 2)", 3),
        ("(i32(i) - 0x7fffffff - 1) / (i32(i) - 1)", -(1 << 31)),
        ("(i32(i) - 8) >> 1u", -4),
        ("i32(-2.7 + f32(i))", -2),
        ("i32(-3e9 - f32(i))", -(1 << 31)),
        ("abs(i32(i) - 4) + sign(i32(i) - 4)", 3),
        ("extractBits(i32(i) - 2, 0u, 4u)", -2),
        ("~(i32(i) + 4)", -5),
        ("firstLeadingBit(i32(i) - 3)", 1),
    ],
)
def test_kernel__signed_integers__as_wgsl_says(host: Host, expression: str, expected: int) -> None:
    assert run(host, f"y[i] = {expression};", "i32") == [expected], "i is known"
    assert run(host, f"y[i] = {expression};", "i32", 2)[0] == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("params.f * 3.0 - 1.0 / 4.0", 1.25),
        ("round(f32(i) + 2.5) + floor(-0.5 - f32(i)) + ceil(f32(i) + 0.25) + trunc(f32(i) - 1.75)", 1.0),
        ("(f32(i) - 5.5) % 2.0", -1.5),
        ("sqrt(f32(i) + 4.0) + inverseSqrt(f32(i) + 16.0)", 2.25),
        ("fma(f32(i) + 2.0, 3.0, 4.0) + mix(1.0, 3.0, f32(i) + 0.25)", 11.5),
        ("exp(f32(i) + 1.0) + log(f32(i) + 2.0) + pow(f32(i) + 2.0, 0.5)", np.e + np.log(2) + np.sqrt(2)),
        ("exp2(f32(i) - 3.0) + ldexp(f32(i) + 1.0, 5)", 32.125),
        ("unpack2x16float(0x3c00c000u + i).x", -2.0),
        ("squared(vec3<f32>(f32(i) + 2.0, 3.0, 6.0))", 49.0),
        ("(vec4<f32>(f32(i)) + vec4<f32>(1.0, 2.0, 3.0, 4.0)).wzyx[1]", 3.0),
        ("-abs(vec4<f32>(f32(i) - 2.0)).y", -2.0),
    ],
)
def test_kernel__floats__as_wgsl_says(host: Host, expression: str, expected: float) -> None:
    more = "fn squared(v: vec3<f32>) -> f32 { return dot(v, v); }"
    assert run(host, f"y[i] = {expression};", more=more) == [pytest.approx(expected, rel=1e-6)], "i is known"
    assert run(host, f"y[i] = {expression};", count=2, more=more)[0] == pytest.approx(expected, rel=1e-6)


BODIES = {
    "a loop with break and continue": (
        """var s = 0u;
        for (var k = 0u; k < 100u; k++) { if (k % 2u == 1u) { continue; } if (k > i * 4u) { break; } s += k; }
        y[i] = s;""",
        [0, 6, 20, 42],
    ),
    "while, and a loop without end": (
        "var n = i; while (n < 10u) { n += 3u; } loop { n--; if (n < 9u) { break; } } y[i] = n;",
        [8, 8, 8, 8],
    ),
    "switch": (
        "switch (i) { case 0u: { y[i] = 5u; } case 1u, 2u: { y[i] = 6u; } default: { y[i] = 7u; } }",
        [5, 6, 6, 7],
    ),
    "an array with an index of the run": (
        "var a: array<u32, 4>; a[i] = 3u; a[3u - i] += 1u; y[i] = a[0] * 1000u + a[1] * 100u + a[2] * 10u + a[3];",
        [3001, 310, 130, 1003],
    ),
    "a component with an index of the run": (
        "var v = vec4<u32>(1u, 2u, 3u, 4u); v[i] = 9u; y[i] = v.x * 1000u + v.y * 100u + v.z * 10u + v.w + v[i];",
        [9234 + 9, 1934 + 9, 1294 + 9, 1239 + 9],
    ),
    "structs by value": (
        "var p = Pair(i, 2u); let q = p; p.a = 7u; y[i] = total(p) * 10u + total(q);",
        [92, 93, 94, 95],
    ),
    "returns from branches": ("y[i] = graded(i);", [1, 20, 300, 300]),
    "an early return": ("if (i == 2u) { return; } y[i] = i + 1u;", [1, 2, 0, 4]),
    "what && guards": ("if (i > 0u && touched(i)) { y[i] += 1u; }", [0, 2, 2, 2]),
    "an index and a number that is added": ("y[(i - 4u) + 4u] = y[i] + i;", [0, 1, 2, 3]),
    "variables of the module": ("count += i; y[i] = count;", [1, 2, 3, 4]),
    "atomics": ("atomicMax(&z[0], i); y[i] = atomicAdd(&z[1], 2u);", None),
}
MORE = """
struct Pair { a: u32, b: u32 }
var<private> count: u32 = 1u;
fn total(p: Pair) -> u32 { return p.a + p.b; }
fn graded(n: u32) -> u32 {
  if (n == 0u) { return 1u; }
  for (var k = 1u; k < 50u; k++) { if (k == n && k == 1u) { return 20u; } }
  return 300u;
}
fn touched(n: u32) -> bool { y[n] = 1u; return true; }
"""


@pytest.mark.parametrize("name", [name for name, (_, expected) in BODIES.items() if expected])
def test_kernel__statements__as_wgsl_says(host: Host, name: str) -> None:
    body, expected = BODIES[name]
    assert run(host, body, "u32", 4, MORE) == expected


def test_kernel__atomic_functions__one_invocation_after_another(host: Host) -> None:
    text = KERNEL.format(kind="u32", more="", size=2, body=BODIES["atomics"][0])
    text = text.replace(
        "struct Params", "@group(0) @binding(2) var<storage, read_write> z: array<atomic<u32>>;\nstruct Params"
    )
    compiled = compile_dispatch(Dispatch(text, [AT, AT + 256], PARAMS, (2, 1, 1), RESERVED))
    host.write(AT + 256, bytes(8), 0, 8)
    host.run(host.load(module([("run", [compiled.body], [0])], 1)), ["run"])
    assert struct.unpack("<4I", host.read(AT, 16)) == (0, 2, 4, 6)
    assert struct.unpack("<2I", host.read(AT + 256, 8)) == (3, 8)


def test_kernel__vectors_of_floats__are_stored_whole(host: Host) -> None:
    body = "let v = vec4<f32>(f32(i), 1.0, 2.0, 3.0); y[i] = select(v * v, -v, v > vec4<f32>(1.5));"
    assert run(host, body, "vec4<f32>", 2) == [0, 1, -2, -3, 1, 1, -2, -3]


def test_kernel__unknown_function__is_refused(host: Host) -> None:
    with pytest.raises(Unsupported, match="the WGSL function sinh"):
        run(host, "y[i] = sinh(1.0);")


def test_kernel__barrier_between_invocations__is_refused(host: Host) -> None:
    with pytest.raises(Unsupported, match=r"workgroupBarrier\(\) in a workgroup of 2 invocations"):
        run(host, "workgroupBarrier(); y[i] = 1.0;", count=2, size=2)
    assert run(host, "workgroupBarrier(); y[i] = 1.0;") == [1.0]


@pytest.mark.parametrize("text", ["fn f() { let x = 1 $ 2; }", "fn f( {", "override n: u32;", "fn f() { x = ; }"])
def test_parse__other_text__is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^WGSL: "):
        parse(text)
