"""Kernels of subgroup matrices where no device has these: a subgroup of one invocation that holds whole matrices."""

from __future__ import annotations

import re
from dataclasses import replace

from pyruntime.kernels import Dispatch
from pyruntime.kernels.ir.kernel import Kernel
from pyruntime.target import MATRIX_UNIT, SHADER_F16, SUBGROUP_MATRIX, SUBGROUP_SIZE, Target

__all__ = ["emulated", "with_matrices"]

_MATRICES = """
struct Left { e: array<f16, UNIT_M * UNIT_K> }
struct Right { e: array<f16, UNIT_K * UNIT_N> }
struct Sum { e: array<f32, UNIT_M * UNIT_N> }

var<workgroup> tile_a: array<vec4<f16>, A_SIZE>;
var<workgroup> tile_b: array<vec4<f16>, B_SIZE>;
var<workgroup> results: array<vec4<f32>, SUBGROUPS * UNIT_M * PITCH>;

fn left_row_major(at: u32, pitch: u32) -> Left {
  var made: Left;
  for (var i = 0u; i < UNIT_M * UNIT_K; i++) {
    let c = i % UNIT_K;
    made.e[i] = tile_a[at + i / UNIT_K * pitch + c / 4u][c % 4u];
  }
  return made;
}

fn left_col_major(at: u32, pitch: u32) -> Left {
  var made: Left;
  for (var i = 0u; i < UNIT_M * UNIT_K; i++) {
    let r = i / UNIT_K;
    made.e[i] = tile_a[at + i % UNIT_K * pitch + r / 4u][r % 4u];
  }
  return made;
}

fn right_row_major(at: u32, pitch: u32) -> Right {
  var made: Right;
  for (var i = 0u; i < UNIT_K * UNIT_N; i++) {
    let c = i % UNIT_N;
    made.e[i] = tile_b[at + i / UNIT_N * pitch + c / 4u][c % 4u];
  }
  return made;
}

fn right_col_major(at: u32, pitch: u32) -> Right {
  var made: Right;
  for (var i = 0u; i < UNIT_K * UNIT_N; i++) {
    let r = i / UNIT_N;
    made.e[i] = tile_b[at + i % UNIT_N * pitch + r / 4u][r % 4u];
  }
  return made;
}

fn multiply_add(left: Left, right: Right, sum: Sum) -> Sum {
  var a = left;
  var b = right;
  var made = sum;
  for (var i = 0u; i < UNIT_M * UNIT_N; i++) {
    for (var k = 0u; k < UNIT_K; k++) {
      made.e[i] += f32(a.e[i / UNIT_N * UNIT_K + k]) * f32(b.e[k * UNIT_N + i % UNIT_N]);
    }
  }
  return made;
}

fn store_row_major(at: u32, sum: Sum, pitch: u32) {
  var made = sum;
  for (var i = 0u; i < UNIT_M * UNIT_N; i++) {
    let c = i % UNIT_N;
    results[at + i / UNIT_N * pitch + c / 4u][c % 4u] = made.e[i];
  }
}
"""

_CHANGES = (
    (r"enable (subgroups|chromium_experimental_subgroup_matrix);\n", ""),
    (r"alias (Left|Right) = .*\n", ""),
    (r"alias Sum = .*\n", _MATRICES),
    (r"var<workgroup> memory: .*\n", ""),
    (r"  let (tile_a|tile_b|results) = bufferView.*\n", ""),
    (r"\(\*(tile_a|tile_b|results)\)", r"\1"),
    (r" @diagnostic\([^)]*\)", ""),
    (r"  @builtin\(subgroup_id\) subgroup: u32,\n\) \{\n", ") {\n  let subgroup = local;\n"),
    (r"subgroupMatrixLoad<Left, (\w+)>\(\s*tile_a,\s*", r"left_\1("),
    (r"subgroupMatrixLoad<Right, (\w+)>\(\s*tile_b,\s*", r"right_\1("),
    (r"subgroupMatrixStore<(\w+)>\(\s*results,\s*", r"store_\1("),
    (r"subgroupMatrixMultiplyAccumulate\(", "multiply_add("),
)
"""Of `shaders/products/matmul_matrix_tiled.wgsl`, each of which must apply."""


def with_matrices(target: Target, unit: tuple[int, int, int] = (16, 16, 16), lanes: int = 32) -> Target:
    """`target` as a GPU with shader-f16 whose subgroups of `lanes` invocations multiply matrices of these sizes."""
    told = {f"{MATRIX_UNIT}{'x'.join(map(str, unit))}", f"{SUBGROUP_SIZE}{lanes}"}
    others = {f for f in target.features if not f.startswith((MATRIX_UNIT, SUBGROUP_SIZE))}
    features = frozenset({*others, *told, SUBGROUP_MATRIX, SHADER_F16, "subgroups"})
    return replace(target, features=features, disabled=target.disabled | {"software"})


def emulated(dispatch: Dispatch) -> Dispatch:
    """The dispatch of subgroups of one invocation, without what only devices with subgroup matrices know."""
    kernel: Kernel = dispatch.kernel
    if "subgroupMatrix" not in kernel.body:
        return dispatch
    body = kernel.body
    for pattern, text in _CHANGES:
        body, count = re.subn(pattern, text.replace("\\n", "\n") if pattern.endswith("Sum = .*\\n") else text, body)
        assert count, f"{pattern} is not in {kernel.name}"
    return replace(dispatch, kernel=replace(kernel, body=body))
