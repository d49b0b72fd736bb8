"""Mixing of hyper-connection streams. Source: com.microsoft operators of these names.

    HyperConnectionPreMix   y[.., h] = reduction_scale · Σ_c x[.., c, h] · gate[.., c, h]
    HyperConnectionPostMix  y[.., k, h] = Σ_c mix[.., c, k] · x[.., c, h] + gate[.., k, h] · block[.., h]

Streams x are [.., C, H], or [.., C · H] with `num_branches`; a gate is [.., C], [.., C, 1] or [.., C, H]. The type of
gates and mix may differ from that of x, block and y. Sums are float32, rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Source, Target, gather_map, inp, out
from pyruntime.ops.base import Op, op
from pyruntime.ops.microsoft.normalization.streams import branches_of, check_floats

_WIDE = "({row} * params.branches + {c}) * params.hidden + h"
_NARROW = "{row} * params.branches + {c}"


def _check_gate(node: Op, gate: TensorType, lead: tuple[Any, ...], c: Any, h: Any, *more: tuple[Any, ...]) -> None:
    """Raise InvalidGraph unless the gate has one of the allowed shapes, or one of `more`."""
    if gate.shape not in ((*lead, c), (*lead, c, 1), (*lead, c, h), *more):
        shapes = ", ".join(str([*lead, *last]) for last in ((c,), (c, 1), (c, h)))
        node.fail(f"gates of one of the shapes {', '.join([shapes, *(str(list(s)) for s in more)])}", gate)


def _gates(gate: Array, lead: tuple[int, ...], c: int) -> Array:
    """Reshape gates to [.., C, 1] or [.., C, H]."""
    return gate.astype(np.float32).reshape(*lead, c, -1 if gate.size else 1)


def _place(gate: TensorType, lead: tuple[Any, ...], h: Any) -> str:
    """Return a format string of the WGSL index of the gate of feature h of branch c."""
    narrow = gate.shape[len(lead) + 1 :] == (1,) if gate.rank > len(lead) + 1 else gate.rank == len(lead) + 1
    return _NARROW if narrow else _WIDE


@op("HyperConnectionPreMix", opsets=range(1, 2), domain="com.microsoft")
class HyperConnectionPreMix(Op):
    """x: streams; gate: for streams [.., C · H] it may have that shape too; y: [.., H]."""

    reduction_scale: float = 1.0
    num_branches: int = 0

    def infer(self, x: TensorType, gate: TensorType) -> tuple[TensorType, ...]:
        check_floats(self, x, gate)
        lead, c, h = branches_of(self, x, self.num_branches)
        _check_gate(self, gate, lead, c, h, *([x.shape] if self.num_branches else []))
        return (TensorType(x.dtype, (*lead, h)),)

    def evaluate(self, x: Array, gate: Array) -> tuple[Array, ...]:
        lead, c, h = branches_of(self, x, self.num_branches)
        streams = x.astype(np.float32).reshape(*lead, c, h)
        with np.errstate(all="ignore"):
            sums = (streams * _gates(gate, lead, c)).sum(-2, dtype=np.float32)
            return ((sums * np.float32(self.reduction_scale)).astype(x.dtype),)

    def lower(self, target: Target, x: TensorType, gate: TensorType) -> tuple[Dispatch, ...]:
        (y,) = self.infer(x, gate)
        lead, c, h = branches_of(self, x, self.num_branches)
        flat = gate.rank == len(lead) + 1 and gate.shape[-1] != c
        at = _WIDE if flat else _place(gate, lead, h)
        element = f"""let row = i / params.hidden;
  let h = i - row * params.hidden;
  var sum = 0.0;
  for (var c = 0u; c < params.branches; c++) {{
    sum += load_x({_WIDE.format(row="row", c="c")}) * load_gate({at.format(row="row", c="c")});
  }}
  return sum * params.factor;"""
        values = {"branches": c, "hidden": h, "factor": self.reduction_scale}
        sources = [Source("x", inp(0, x)), Source("gate", inp(1, gate))]
        name = "pre_mix_wide" if at is _WIDE else "pre_mix"
        return (gather_map(target, name, out(0, y), sources, element, values, flops=2 * x.size),)


@op("HyperConnectionPostMix", opsets=range(1, 2), domain="com.microsoft")
class HyperConnectionPostMix(Op):
    """x: streams; block: [.., H]; mix: [.., C, C], default identity; y: like x."""

    num_branches: int = 0

    def infer(
        self, x: TensorType, block: TensorType, gate: TensorType, mix: TensorType | None = None
    ) -> tuple[TensorType, ...]:
        check_floats(self, x, block, gate, mix)
        self.same_dtype(x, block)
        self.same_dtype(gate, mix)
        lead, c, h = branches_of(self, x, self.num_branches)
        if block.shape != (*lead, h):
            self.fail(f"the output of a block {[*lead, h]}", block)
        _check_gate(self, gate, lead, c, h)
        if mix is not None and mix.shape != (*lead, c, c):
            self.fail(f"a matrix of streams {[*lead, c, c]}", mix)
        return (TensorType(x.dtype, x.shape),)

    def evaluate(self, x: Array, block: Array, gate: Array, mix: Array | None = None) -> tuple[Array, ...]:
        lead, c, h = branches_of(self, x, self.num_branches)
        streams = x.astype(np.float32).reshape(*lead, c, h)
        with np.errstate(all="ignore"):
            kept = streams if mix is None else mix.astype(np.float32).swapaxes(-1, -2) @ streams
            y = kept + _gates(gate, lead, c) * block.astype(np.float32)[..., None, :]
        return (y.reshape(x.shape).astype(x.dtype),)

    def lower(
        self, target: Target, x: TensorType, block: TensorType, gate: TensorType, mix: TensorType | None = None
    ) -> tuple[Dispatch, ...]:
        (y,) = self.infer(x, block, gate, mix)
        lead, c, h = branches_of(self, x, self.num_branches)
        at = _place(gate, lead, h)
        kept = "sum += load_x(i);"
        if mix is not None:
            kept = f"""for (var c = 0u; c < params.branches; c++) {{
    let weight = load_mix((row * params.branches + c) * params.branches + k);
    sum += weight * load_x({_WIDE.format(row="row", c="c")});
  }}"""
        element = f"""let line = i / params.hidden;
  let h = i - line * params.hidden;
  let row = line / params.branches;
  let k = line - row * params.branches;
  var sum = load_gate({at.format(row="row", c="k")}) * load_block(row * params.hidden + h);
  {kept}
  return sum;"""
        sources = [Source("x", inp(0, x)), Source("block", inp(1, block)), Source("gate", inp(2, gate))]
        sources += [Source("mix", inp(3, mix))] if mix is not None else []
        name = f"post_mix{'_matrix' if mix is not None else ''}{'_wide' if at is _WIDE else ''}"
        flops = 2 * x.size * (c + 1 if mix is not None else 1)
        values = {"branches": c, "hidden": h}
        return (gather_map(target, name, out(0, y), sources, element, values, flops=flops),)
