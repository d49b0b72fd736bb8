"""Recurrent layers on the GPU.

The inputs of all times are multiplied by W at once; then come the steps: one dispatch that loops over all of them with
a workgroup for each batch entry and direction where a step is small, else a dispatch a step that spreads over the GPU.
Where no sequence is shorter than others and y is float32, they read the initial states and write y themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyruntime.ir import DType
from pyruntime.kernels.ir.dispatch import Dispatch, Operand, scratch
from pyruntime.kernels.ir.epilogue import Epilogue
from pyruntime.kernels.ir.kernel import Kernel
from pyruntime.kernels.ir.launch import bind, kernel_of
from pyruntime.kernels.ir.template import params_of
from pyruntime.kernels.map import Source, gather_map
from pyruntime.kernels.products.integer_matmul import PACKED_DOT
from pyruntime.kernels.products.matmul import Product, matmul
from pyruntime.kernels.products.packed_weights import in_words
from pyruntime.target import Target

__all__ = ["Bytes", "Layer", "recurrent"]

UNITS, SHARES = 32, 8
"""Units a workgroup makes at once, and invocations that share the sum of one."""

SOFTWARE_UNITS = 4
"""Units on a processor, without sharing: one subgroup, whose barriers cost nothing there."""

SOFTWARE_GROUPS = 8
"""Workgroups of a step by bytes on a processor, each of which rounds the state again."""

LOOPED = 1 << 18
"""Multiplications of a step up to which one workgroup does it as fast as a dispatch starts."""

LONGEST = 1 << 27
"""Multiplications an invocation group may do in one dispatch, so that no watchdog ends it."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """Recurrent weights of 8 bits, by which a state is multiplied that is rounded to 8 bits at each step.

    Attributes:
        columns: float32 [D, 3, G·H]: a gate's scale, zero point (less 128 where R is uint8) and the sum of
            its weights less the zero point. has_zeros: zero points may be other than 0.
    """

    columns: Operand
    has_zeros: bool


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer's operands and attributes; the ONNX names of `pyruntime.ops.recurrent.recurrent`.

    Attributes:
        kind: 'LSTM', 'GRU' or 'RNN'.
        backward: for each direction, whether it runs backward.
        functions: for each direction, the WGSL of its activations, expressions of `x`.
        reset_first: a GRU whose reset gate multiplies h before R.
        rounded: R is int8 or uint8 [D, G·H, H rounded up to 16] and x [T, B, D·G·H], what an LSTM's inputs times W and
            the biases give; there is no W.
    """

    kind: str
    x: Operand
    w: Operand | None
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
    rounded: Bytes | None = None

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
        return self.r.type.shape[1] // self.gates

    @property
    def directions(self) -> int:
        """1 or 2."""
        return len(self.backward)

    @property
    def rows(self) -> int:
        """Gates of all units."""
        return self.gates * self.hidden

    @property
    def reversed(self) -> int:
        """A bit for each direction, 1 where it runs backward."""
        return sum(1 << d for d, backward in enumerate(self.backward) if backward)


@dataclass(frozen=True, slots=True)
class _States:
    """Where the steps keep what they hand on: elements from one time, direction and batch entry to the next.

    Attributes:
        hs: h of every time; of the initial state too, in front, where not `is_direct`. cell: c, of an LSTM.
        is_direct: hs has the times of y, and may be y.
    """

    hs: Operand
    cell: Operand | None
    is_direct: bool
    hs_steps: tuple[int, int, int]
    cell_steps: tuple[int, int]


def _units(target: Target) -> tuple[int, int]:
    """Units of a workgroup, and invocations that share the sum of one."""
    if target.is_serial:
        return 1, 1
    return (SOFTWARE_UNITS, 1) if target.is_software else (UNITS, target.widest(UNITS * SHARES) // UNITS)


def _pair(layer: Layer, batch_first: bool) -> tuple[int, int]:
    """Strides of directions and of batch entries, in elements, in [D, B, H] or [B, D, H]."""
    D, B, H = layer.directions, layer.batch, layer.hidden
    return (H, D * H) if batch_first else (B * H, H)


def _states(layer: Layer, y: Operand | None, y_c: Operand | None) -> _States:
    D, B, H, T = layer.directions, layer.batch, layer.hidden, layer.times

    def plain(operand: Operand | None) -> bool:
        return operand is None or operand.type.dtype is DType.FLOAT

    is_direct = layer.lens is None and plain(y) and T > 0
    own = is_direct and y_c is not None and plain(y_c)
    cell = (y_c if own else scratch(DType.FLOAT, D, B, H)) if layer.kind == "LSTM" else None
    cell_steps = _pair(layer, layer.batch_first and own)
    if not is_direct:
        return _States(scratch(DType.FLOAT, T + 1, D, B, H), cell, False, (D * B * H, *_pair(layer, False)), cell_steps)
    if layer.batch_first:
        steps = (D * H, H, T * D * H)
    else:
        steps = (D * B * H, *_pair(layer, False))
    return _States(y if y is not None else scratch(DType.FLOAT, T, D, B, H), cell, True, steps, cell_steps)


def recurrent(
    target: Target, layer: Layer, y: Operand | None, y_h: Operand | None, y_c: Operand | None = None
) -> tuple[Dispatch, ...]:
    """The layer's dispatches; outputs that are None are not made."""
    states = _states(layer, y, y_c)
    xw = layer.x
    made: list[Dispatch] = []
    if layer.w is not None:
        xw = scratch(DType.FLOAT, layer.directions, layer.times * layer.batch, layer.rows)
        made += _inputs(target, layer, xw, layer.w)
    if not states.is_direct:
        made.append(_initial(target, "recurrent_h0", states.hs, layer.h0, layer))
        if states.cell is not None:
            made.append(_initial(target, "recurrent_c0", states.cell, layer.c0, layer))
    made += _steps(target, layer, xw, states)
    if y is not None and y is not states.hs:
        made.append(_outputs(target, layer, y, states.hs))
    if y_h is not None:
        made.append(_last_state(target, layer, y_h, states))
    if y_c is not None and states.cell is not None and y_c is not states.cell:
        made.append(_last(target, layer, y_c, states.cell, "recurrent_cell", "0u", (0, *states.cell_steps)))
    return tuple(made)


def _inputs(target: Target, layer: Layer, xw: Operand, w: Operand) -> tuple[Dispatch, ...]:
    """Return the dispatches of x Wᵀ plus biases, for all time steps at once."""
    D, rows = layer.directions, layer.rows
    m, k = layer.times * layer.batch, layer.x.type.shape[2]
    product = Product(m, rows, k, (D,), (0,), (rows * k,), trans_b=True)
    return matmul(target, xw, layer.x, w, product, _bias(layer, m))


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
    """The initial state, or zeros, at the front of `state`; zeros after it."""
    if given is None:
        return gather_map(target, "recurrent_zero", state, [], "return 0.0;")
    element = """
  if (i >= params.count) { return 0.0; }
  let j = i % params.hidden;
  let b = (i / params.hidden) % params.batch;
  let d = i / (params.hidden * params.batch);
  return load_x(d * params.direction_stride + b * params.batch_stride + j);"""
    return gather_map(target, name, state, [Source("x", given)], element, _state_values(layer))


def _state_values(layer: Layer) -> dict[str, int]:
    """Uniforms that tell where (direction, batch entry) is in a tensor of states as the model stores it."""
    D, B, H = layer.directions, layer.batch, layer.hidden
    return {
        "count": D * B * H,
        "hidden": H,
        "batch": B,
        "directions": D,
        "direction_stride": H if layer.batch_first else B * H,
        "batch_stride": D * H if layer.batch_first else H,
    }


def _kernel(
    target: Target, layer: Layer, looped: bool, is_direct: bool, tensors: Mapping[str, Operand | None]
) -> Kernel:
    """Return the kernel with the activation functions of this layer."""
    units, shares = _units(target)
    flags = {
        layer.kind: True,
        "RESET_FIRST": layer.reset_first,
        "BIAS": layer.kind == "GRU" and not layer.reset_first and layer.bias is not None,
        "INPUT_FORGET": layer.input_forget,
        "PEEPHOLE": layer.peephole is not None,
        "LENS": layer.lens is not None,
        "CLIP": layer.clip is not None,
        "LOOP": looped,
        "DIRECT": is_direct,
        "H0": is_direct and layer.h0 is not None,
        "C0": is_direct and layer.c0 is not None,
        "VECTORS": target.is_serial and layer.rounded is None and not layer.reset_first and layer.hidden % 4 == 0,
    }
    gates = 2 if layer.reset_first else layer.gates
    sizes = {"GATES": gates, "UNITS": units, "SHARES": shares}
    if layer.rounded is not None:
        sizes["QUADS"] = layer.r.type.shape[2] // 16
        flags |= {"BYTES": True, "UNSIGNED": layer.r.type.dtype is DType.UINT8, "ZEROS": layer.rounded.has_zeros}
        flags["PACKED_DOT"] = PACKED_DOT in target.features
    kernel = kernel_of("recurrent_steps", tensors, {**sizes, **flags})
    module = kernel.module
    for place, letter in enumerate("fgh"[: len(layer.functions[0])]):
        first, last = layer.functions[0][place], layer.functions[-1][place]
        branch = f"if (d == 1u) {{ return {last}; }} " if last != first else ""
        code = f"fn act_{letter}(x: f32, d: u32) -> f32 {{ {branch}return {first}; }}"
        module = module.with_function(f"act_{letter}", code)
    return replace(kernel, name=f"recurrent_{layer.kind.lower()}{'_loop' if looped else '_step'}", body=module.text)


def _steps(target: Target, layer: Layer, xw: Operand, states: _States) -> list[Dispatch]:
    """All steps, in as few dispatches as their size allows."""
    D, B, H = layer.directions, layer.batch, layer.hidden
    work = layer.rows * H
    looped = work <= LOOPED and (layer.rounded is None or B == 1)  # entries of a batch share the range of h
    operands = {
        "xw": xw,
        "r": layer.r if layer.rounded is None else in_words(layer.r, 4),
        "columns": layer.rounded.columns if layer.rounded is not None else None,
        "h0": layer.h0 if states.is_direct else None,
        "c0": layer.c0 if states.is_direct else None,
        "peephole": layer.peephole,
        "bias": layer.bias,
        "lens": layer.lens,
        "hs": states.hs,
        "cell": states.cell,
        "update": scratch(DType.FLOAT, D, B, H),
        "reset": scratch(DType.FLOAT, D, B, H),
    }
    kernel = _kernel(target, layer, looped, states.is_direct, operands)
    bound = bind(kernel, operands)
    blocks = -(-H // _units(target)[0])
    groups = D * B if looped else D * B * blocks
    stride = max(1, min(layer.times, LONGEST // max(1, work))) if looped else 1
    turns = 1
    if layer.rounded is not None and target.is_software and not looped:
        turns = max(1, blocks // SOFTWARE_GROUPS)
        blocks = -(-blocks // turns)
        groups = D * B * blocks
    fixed = {
        "times": layer.times,
        "batch": B,
        "hidden": H,
        "blocks": blocks,
        "turns": turns,
        "groups": groups,
        **_input_steps(layer),
        "all_gates": layer.gates,
        "reversed": layer.reversed,
        **dict(zip(("hs_time", "hs_direction", "hs_batch"), states.hs_steps, strict=True)),
        **dict(zip(("cell_direction", "cell_batch"), states.cell_steps, strict=True)),
        **dict(zip(("given_direction", "given_batch"), _pair(layer, layer.batch_first), strict=True)),
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


def _input_steps(layer: Layer) -> dict[str, int]:
    """Elements of xw from a direction, a time and a batch entry to the next."""
    D, B, rows = layer.directions, layer.batch, layer.rows
    if layer.rounded is not None:
        return {"xw_direction": rows, "xw_time": B * D * rows, "xw_batch": D * rows}
    time, batch = (rows, layer.times * rows) if layer.batch_first else (B * rows, rows)
    return {"xw_direction": layer.times * B * rows, "xw_time": time, "xw_batch": batch}


def _length(layer: Layer) -> str:
    """WGSL: the length of sequence `b`."""
    return "u32(clamp(load_lens(b), 0i, i32(params.times)))" if layer.lens is not None else "params.times"


def _outputs(target: Target, layer: Layer, y: Operand, hs: Operand) -> Dispatch:
    """The hidden states in the order the model wants, zeros past the end of a sequence."""
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
    values = {**_state_values(layer), "row": row, "times": layer.times, "reversed": layer.reversed}
    return gather_map(target, "recurrent_outputs", y, sources, element, values)


def _last_state(target: Target, layer: Layer, y: Operand, states: _States) -> Dispatch:
    """Return the dispatch that copies h after the last step of each sequence."""
    slot = "select(params.times - 1u, 0u, ((params.reversed >> d) & 1u) == 1u)" if states.is_direct else "length"
    return _last(target, layer, y, states.hs, "recurrent_last", slot, states.hs_steps)


def _last(
    target: Target, layer: Layer, y: Operand, state: Operand, name: str, slot: str, steps: tuple[int, int, int]
) -> Dispatch:
    """What `state` holds at time `slot`, in the order the model wants; zero for a sequence without steps."""
    if layer.batch_first:
        order = "let d = i / params.hidden % params.directions; let b = i / (params.hidden * params.directions);"
    else:
        order = "let b = i / params.hidden % params.batch; let d = i / (params.hidden * params.batch);"
    element = f"""
  let j = i % params.hidden;
  {order}
  let length = {_length(layer)};
  if (length == 0u) {{ return 0.0; }}
  return load_hs({slot} * params.time_step + d * params.direction_step + b * params.batch_step + j);"""
    sources = [Source("hs", state), *([Source("lens", layer.lens)] if layer.lens is not None else [])]
    values = {
        "hidden": layer.hidden,
        "batch": layer.batch,
        "directions": layer.directions,
        "times": layer.times,
        "reversed": layer.reversed,
        **dict(zip(("time_step", "direction_step", "batch_step"), steps, strict=True)),
    }
    return gather_map(target, name, y, sources, element, values)
