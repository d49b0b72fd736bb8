"""Recurrent layers on the GPU.

The inputs of all times are multiplied by W at once; then come the steps: one dispatch that loops over all of them with
a workgroup for each batch entry and direction where a step is small, else a dispatch a step that spreads over the GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyruntime.ir import DType
from pyruntime.kernels.dispatch import Dispatch, Operand, Target, scratch
from pyruntime.kernels.epilogue import Epilogue
from pyruntime.kernels.kernel import Kernel
from pyruntime.kernels.map import Source, gather_map
from pyruntime.kernels.matmul import Product, matmul
from pyruntime.kernels.movement import strided_copy
from pyruntime.kernels.template import params_of, template

__all__ = ["Layer", "recurrent"]

UNITS, SHARES = 32, 8
"""Units a workgroup makes at once, and invocations that share the sum of one."""

SOFTWARE_UNITS = 4
"""Units on a processor, without sharing: one subgroup, whose barriers cost nothing there."""

LOOPED = 1 << 18
"""Multiplications of a step up to which one workgroup does it as fast as a dispatch starts."""

LONGEST = 1 << 27
"""Multiplications an invocation group may do in one dispatch, so that no watchdog ends it."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer's operands and attributes; the ONNX names of `pyruntime.ops.recurrent`.

    Attributes:
        kind: 'LSTM', 'GRU' or 'RNN'.
        backward: for each direction, whether it runs backward.
        functions: for each direction, the WGSL of its activations, expressions of `x`.
        reset_first: a GRU whose reset gate multiplies h before R.
    """

    kind: str
    x: Operand
    w: Operand
    r: Operand
    bias: Operand | None
    lens: Operand | None
    h0: Operand | None
    c0: Operand | None
    peephole: Operand | None
    gates: int
    backward: tuple[bool, ...]
    functions: tuple[tuple[str, ...], ...]
    batch_first: bool
    clip: float | None
    input_forget: bool
    reset_first: bool

    @property
    def times(self) -> int:
        """Steps of the longest sequence."""
        return self.x.type.shape[1 if self.batch_first else 0]

    @property
    def batch(self) -> int:
        """Sequences."""
        return self.x.type.shape[0 if self.batch_first else 1]

    @property
    def hidden(self) -> int:
        """Units."""
        return self.r.type.shape[2]

    @property
    def directions(self) -> int:
        """1 or 2."""
        return len(self.backward)

    @property
    def rows(self) -> int:
        """Gates of all units."""
        return self.gates * self.hidden


def recurrent(
    target: Target, layer: Layer, y: Operand | None, y_h: Operand | None, y_c: Operand | None = None
) -> tuple[Dispatch, ...]:
    """The layer's dispatches; outputs that are None are not made."""
    states = (layer.directions, layer.batch, layer.hidden)
    hs = scratch(DType.FLOAT, layer.times + 1, *states)
    cell = scratch(DType.FLOAT, *states) if layer.kind == "LSTM" else None
    rt = scratch(layer.r.type.dtype, layer.directions, layer.hidden, layer.rows)
    xw = scratch(DType.FLOAT, layer.directions, layer.times * layer.batch, layer.rows)
    made = [*_inputs(target, layer, rt, xw), _initial(target, "recurrent_h0", hs, layer.h0, layer)]
    if cell is not None:
        made.append(_initial(target, "recurrent_c0", cell, layer.c0, layer))
    made += _steps(target, layer, rt, xw, hs, cell)
    if y is not None:
        made.append(_outputs(target, layer, y, hs))
    if y_h is not None:
        made.append(_last(target, layer, y_h, hs, "recurrent_last"))
    if y_c is not None and cell is not None:
        made.append(_last(target, layer, y_c, cell, "recurrent_cell"))
    return tuple(made)


def _inputs(target: Target, layer: Layer, rt: Operand, xw: Operand) -> tuple[Dispatch, ...]:
    """R transposed, so that neighbouring units read neighbouring weights, and x Wᵀ plus biases for all times."""
    D, H, rows = layer.directions, layer.hidden, layer.rows
    turned = strided_copy(target, "recurrent_turn", rt, layer.r, 0, (rows * H, 1, H))
    m, k = layer.times * layer.batch, layer.x.type.shape[2]
    product = Product(m, rows, k, (D,), (0,), (rows * k,), trans_b=True)
    return (turned, *matmul(target, xw, layer.x, layer.w, product, _bias(layer, m)))


def _bias(layer: Layer, m: int) -> Epilogue | None:
    """Adds W's bias, and R's where it is not part of what a late reset multiplies."""
    if layer.bias is None:
        return None
    late = layer.kind == "GRU" and not layer.reset_first
    helper = f"""fn bias_of(d: u32, col: u32) -> f32 {{
  let at = d * 2u * params.bias_gates + col;
  {"if (col >= params.bias_gates / 3u * 2u) { return load_bias(at); }" if late else ""}
  return load_bias(at) + load_bias(at + params.bias_gates);
}}
"""
    code = """let d = row / params.bias_rows;
  return value + vec4<T>(bias_of(d, col), bias_of(d, col + 1u), bias_of(d, col + 2u), bias_of(d, col + 3u));"""
    name = "late_bias" if late else "biases"
    fields = (("bias_rows", "u32"), ("bias_gates", "u32"))
    return Epilogue(name, code, {"bias": layer.bias}, fields, {"bias_rows": m, "bias_gates": layer.rows}, helper)


def _initial(target: Target, name: str, state: Operand, given: Operand | None, layer: Layer) -> Dispatch:
    """The initial state, or zeros, at the front of `state`; zeros behind it."""
    if given is None:
        return gather_map(target, "recurrent_zero", state, [], "return 0.0;")
    element = """
  if (i >= params.count) { return 0.0; }
  let j = i % params.hidden;
  let b = (i / params.hidden) % params.batch;
  let d = i / (params.hidden * params.batch);
  return load_x(d * params.direction_stride + b * params.batch_stride + j);"""
    fields, values = _state_fields(layer)
    return gather_map(target, name, state, [Source("x", given)], element, fields, values)


def _state_fields(layer: Layer) -> tuple[tuple[tuple[str, str], ...], dict[str, int]]:
    """Uniforms that tell where (direction, batch entry) is in a tensor of states as the model has it."""
    D, B, H = layer.directions, layer.batch, layer.hidden
    values = {
        "count": D * B * H,
        "hidden": H,
        "batch": B,
        "directions": D,
        "direction_stride": H if layer.batch_first else B * H,
        "batch_stride": D * H if layer.batch_first else H,
    }
    return tuple((name, "u32") for name in values), values


def _kernel(layer: Layer, looped: bool, units: int, shares: int, types: Mapping[str, DType]) -> Kernel:
    """The template with this layer's functions."""
    flags = {
        layer.kind: True,
        "RESET_FIRST": layer.reset_first,
        "BIAS": layer.kind == "GRU" and not layer.reset_first and layer.bias is not None,
        "INPUT_FORGET": layer.input_forget,
        "PEEPHOLE": layer.peephole is not None,
        "LENS": layer.lens is not None,
        "CLIP": layer.clip is not None,
        "LOOP": looped,
    }
    gates = 2 if layer.reset_first else layer.gates
    sizes = {"GATES": gates, "UNITS": units, "SHARES": shares}
    kernel = template("recurrent_steps", types, **sizes, **{k: 1 for k, v in flags.items() if v})
    module = kernel.module
    for place, letter in enumerate("fgh"[: len(layer.functions[0])]):
        first, last = layer.functions[0][place], layer.functions[-1][place]
        branch = f"if (d == 1u) {{ return {last}; }} " if last != first else ""
        code = f"fn act_{letter}(x: f32, d: u32) -> f32 {{ {branch}return {first}; }}"
        module = module.with_function(f"act_{letter}", code)
    return replace(kernel, name=f"recurrent_{layer.kind.lower()}{'_loop' if looped else '_step'}", body=module.text)


def _steps(target: Target, layer: Layer, rt: Operand, xw: Operand, hs: Operand, cell: Operand | None) -> list[Dispatch]:
    """All steps, in as few dispatches as their size allows."""
    D, B, H = layer.directions, layer.batch, layer.hidden
    work = layer.rows * H
    looped = work <= LOOPED
    states = (D, B, H)
    operands = {
        "xw": xw,
        "rt": rt,
        "peephole": layer.peephole,
        "bias": layer.bias,
        "lens": layer.lens,
        "hs": hs,
        "cell": cell,
        "update": scratch(DType.FLOAT, *states),
        "reset": scratch(DType.FLOAT, *states),
    }
    units, shares = (SOFTWARE_UNITS, 1) if target.is_software else (UNITS, SHARES)
    kernel = _kernel(
        layer, looped, units, shares, {name: o.type.dtype for name, o in operands.items() if o is not None}
    )
    bound = tuple(o for b in kernel.bindings if (o := operands[b.name]) is not None)
    blocks = -(-H // units)
    groups = D * B if looped else D * B * blocks
    stride = max(1, min(layer.times, LONGEST // max(1, work))) if looped else 1
    time, batch = (layer.rows, layer.times * layer.rows) if layer.batch_first else (B * layer.rows, layer.rows)
    fixed = {
        "times": layer.times,
        "directions": D,
        "batch": B,
        "hidden": H,
        "blocks": blocks,
        "groups": groups,
        "xw_direction": layer.times * B * layer.rows,
        "xw_time": time,
        "xw_batch": batch,
        "all_gates": layer.gates,
        "reversed": sum(1 << d for d, backward in enumerate(layer.backward) if backward),
    }
    clip = layer.clip or 0.0
    made = []
    for first in range(0, layer.times, stride):
        steps = min(stride, layer.times - first)
        for phase in range(2 if layer.reset_first and not looped else 1):
            params = params_of(kernel, first=first, steps=steps, phase=phase, clip=clip, **fixed)
            flops = 2 * steps * D * B * work
            made.append(Dispatch(kernel, bound, target.fold(max(1, groups)), params, flops=flops))
    return made


def _length(layer: Layer) -> str:
    """WGSL: the length of sequence `b`."""
    return "u32(clamp(load_lens(b), 0i, i32(params.times)))" if layer.lens is not None else "params.times"


def _outputs(target: Target, layer: Layer, y: Operand, hs: Operand) -> Dispatch:
    """The hidden states in the order the model wants, zeros past the end of a sequence."""
    fields, values = _state_fields(layer)
    if layer.batch_first:
        order = """let d = i / params.hidden % params.directions;
  let t = i / params.row % params.times;
  let b = i / (params.row * params.times);"""
    else:
        order = """let b = i / params.hidden % params.batch;
  let d = i / (params.hidden * params.batch) % params.directions;
  let t = i / params.row;"""
    row = layer.hidden * layer.directions * (1 if layer.batch_first else layer.batch)
    element = f"""
  let j = i % params.hidden;
  {order}
  let length = {_length(layer)};
  if (t >= length) {{ return 0.0; }}
  let s = select(t, length - 1u - t, ((params.reversed >> d) & 1u) == 1u);
  return load_hs((((s + 1u) * params.directions + d) * params.batch + b) * params.hidden + j);"""
    sources = [Source("hs", hs), *([Source("lens", layer.lens)] if layer.lens is not None else [])]
    fields += (("row", "u32"), ("times", "u32"), ("reversed", "u32"))
    values |= {
        "row": row,
        "times": layer.times,
        "reversed": sum(1 << d for d, backward in enumerate(layer.backward) if backward),
    }
    return gather_map(target, "recurrent_outputs", y, sources, element, fields, values)


def _last(target: Target, layer: Layer, y: Operand, state: Operand, name: str) -> Dispatch:
    """The state after every sequence's last step; a cell holds no other."""
    fields, values = _state_fields(layer)
    if layer.batch_first:
        order = "let d = i / params.hidden % params.directions; let b = i / (params.hidden * params.directions);"
    else:
        order = "let b = i / params.hidden % params.batch; let d = i / (params.hidden * params.batch);"
    slot = _length(layer) if name == "recurrent_last" else "0u"
    element = f"""
  let j = i % params.hidden;
  {order}
  return load_hs((({slot} * params.directions + d) * params.batch + b) * params.hidden + j);"""
    sources = [Source("hs", state)]
    if layer.lens is not None and name == "recurrent_last":
        sources.append(Source("lens", layer.lens))
    fields += (("times", "u32"),)
    values |= {"times": layer.times}
    return gather_map(target, name, y, sources, element, fields, values)
