"""Adagrad, Adam, Momentum: one step of an optimizer. Source: ONNX operators of ai.onnx.preview.training.

Inputs: R, the learning rate; T, the number of previous steps; then the tensors to optimize, their gradients and their
states, grouped by kind: X_1, X_2, ..., G_1, G_2, ..., V_1, ... Outputs: the new tensors, then the new states. G' is the
regularized gradient, norm_coefficient·X + G.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Target, elementwise, inp, out
from pyruntime.ops.base import Op, Unsupported, op

_POWER = """fn whole_power(base: f32, exponent: vec2<u32>) -> f32 {
  var rest = exponent;
  var square = base;
  var result = 1.0;
  for (var n = 0u; n < 64u; n++) {
    if ((rest.x & 1u) == 1u) { result *= square; }
    square *= square;
    rest = u64_shr(rest, 1u);
  }
  return result;
}"""


class _Optimizer(Op):
    """Base of all optimizers.

    Class attributes:
        names: the kinds of tensors: x, g and the states.
        wgsl: statements that compute `x_new` and `<state>_new` from these, `r`, `t` and the attributes.
    """

    names: ClassVar[tuple[str, ...]]
    wgsl: ClassVar[str]

    def infer(self, r: TensorType, t: TensorType, *tensors: TensorType) -> tuple[TensorType, ...]:
        count, rest = divmod(len(tensors), len(self.names))
        if rest or not count:
            self.fail(f"a multiple of {len(self.names)} tensors: {', '.join(self.names)}", len(tensors))
        if r.size != 1 or t.size != 1 or t.dtype is not DType.INT64:
            self.fail("a scalar R and an int64 scalar T", f"{r} and {t}")
        for i in range(count):
            group = tensors[i::count]
            self.same_dtype(*group)
            if any(x.shape != group[0].shape for x in group):
                self.fail("tensors of one shape", [str(x) for x in group])
        changed = (*tensors[:count], *tensors[2 * count :])
        return tuple(TensorType(x.dtype, x.shape) for x in changed)

    def evaluate(self, r: Array, t: Array, *tensors: Array) -> tuple[Array, ...]:
        count = len(tensors) // len(self.names)
        steps = [self.step(float(r.reshape(())), int(t.reshape(())), *tensors[i::count]) for i in range(count)]
        return tuple(made[k] for k in range(len(self.names) - 1) for made in steps)

    def step(self, r: float, t: int, *tensors: Array) -> Sequence[Array]:
        """Return the new tensor and its new states."""
        raise NotImplementedError

    def scalars(self) -> dict[str, float]:
        """Return the attributes that `wgsl` uses."""
        raise NotImplementedError

    def lower(self, target: Target, r: TensorType, t: TensorType, *tensors: TensorType) -> tuple[Dispatch, ...]:
        if any(x.dtype is not DType.FLOAT for x in (r, *tensors)):
            raise Unsupported("float64 is exact on the host")
        count = len(tensors) // len(self.names)
        kept = [n for n in self.names if n != "g"]
        made = []
        for k, kind in enumerate(kept):
            for i in range(count):
                group = {n: inp(2 + j * count + i, tensors[j * count + i]) for j, n in enumerate(self.names)}
                operands = {"r": inp(0, r), "t": inp(1, t), **group}
                y = out(k * count + i, tensors[i])
                code = f"{self.wgsl}\n  return {kind}_new;"
                name = f"{self.op_type.lower()}_{kind}"
                made.append(elementwise(target, name, operands, y, code, self.scalars(), _POWER))
        return tuple(made)


@op("Adagrad", domain="ai.onnx.preview.training", opsets=range(1, 2))
class Adagrad(_Optimizer):
    """H_new = H + G'²; X_new = X - R / (1 + T·decay_factor) · G' / (√H_new + epsilon)."""

    names = ("x", "g", "h")
    wgsl = """let gradient = norm_coefficient * x + g;
  let h_new = h + gradient * gradient;
  let x_new = x - r / (1.0 + i64_to_f32(t) * decay_factor) * gradient / (sqrt(h_new) + epsilon);"""
    decay_factor: float = 0.0
    epsilon: float = 9.999999974752427e-07
    norm_coefficient: float = 0.0

    def step(self, r: float, t: int, *tensors: Array) -> Sequence[Array]:
        x, g, h = tensors
        gradient = self.norm_coefficient * x + g
        h_new = h + gradient * gradient
        return x - r / (1 + t * self.decay_factor) * gradient / (np.sqrt(h_new) + self.epsilon), h_new

    def scalars(self) -> dict[str, float]:
        return {"decay_factor": self.decay_factor, "epsilon": self.epsilon, "norm_coefficient": self.norm_coefficient}


@op("Adam", domain="ai.onnx.preview.training", opsets=range(1, 2))
class Adam(_Optimizer):
    """V_new = α·V + (1 - α)·G'; H_new = β·H + (1 - β)·G'²; X_new = (1 - post)·(X - R'·V_new / (√H_new + epsilon)).

    R' = R·√(1 - β^T) / (1 - α^T) if T > 0, else R; post = norm_coefficient_post.
    """

    names = ("x", "g", "v", "h")
    wgsl = """let gradient = norm_coefficient * x + g;
  let v_new = alpha * v + (1.0 - alpha) * gradient;
  let h_new = beta * h + (1.0 - beta) * gradient * gradient;
  var rate = r;
  if (i64_lt(vec2<u32>(0u, 0u), t)) { rate *= sqrt(1.0 - whole_power(beta, t)) / (1.0 - whole_power(alpha, t)); }
  let x_new = (1.0 - norm_coefficient_post) * (x - rate * v_new / (sqrt(h_new) + epsilon));"""
    alpha: float = 0.8999999761581421
    beta: float = 0.9990000128746033
    epsilon: float = 9.999999974752427e-07
    norm_coefficient: float = 0.0
    norm_coefficient_post: float = 0.0

    def step(self, r: float, t: int, *tensors: Array) -> Sequence[Array]:
        x, g, v, h = tensors
        gradient = self.norm_coefficient * x + g
        v_new = self.alpha * v + (1 - self.alpha) * gradient
        h_new = self.beta * h + (1 - self.beta) * gradient * gradient
        rate = r * np.sqrt(1 - self.beta**t) / (1 - self.alpha**t) if t > 0 else r
        x_new = x - rate * v_new / (np.sqrt(h_new) + self.epsilon)
        return (1 - self.norm_coefficient_post) * x_new, v_new, h_new

    def scalars(self) -> dict[str, float]:
        names = ("alpha", "beta", "epsilon", "norm_coefficient", "norm_coefficient_post")
        return {name: getattr(self, name) for name in names}


@op("Momentum", domain="ai.onnx.preview.training", opsets=range(1, 2))
class Momentum(_Optimizer):
    """V_new = α·V + β'·G'; X_new = X - R·V_new, for 'nesterov' X - R·(G' + α·V_new). β' = β if T > 0, else 1."""

    names = ("x", "g", "v")
    wgsl = """let gradient = norm_coefficient * x + g;
  let v_new = alpha * v + select(1.0, beta, i64_lt(vec2<u32>(0u, 0u), t)) * gradient;
  let x_new = x - r * (v_new + nesterov * (gradient + alpha * v_new - v_new));"""
    alpha: float
    beta: float
    mode: Annotated[str, "standard", "nesterov"]
    norm_coefficient: float

    def step(self, r: float, t: int, *tensors: Array) -> Sequence[Array]:
        x, g, v = tensors
        gradient = self.norm_coefficient * x + g
        v_new = self.alpha * v + (self.beta if t > 0 else 1) * gradient
        return x - r * (gradient + self.alpha * v_new if self.mode == "nesterov" else v_new), v_new

    def scalars(self) -> dict[str, float]:
        nesterov = float(self.mode == "nesterov")
        return {"alpha": self.alpha, "beta": self.beta, "norm_coefficient": self.norm_coefficient, "nesterov": nesterov}
