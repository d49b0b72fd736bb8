"""MoE and QMoE: every token goes through the k experts its router prefers. Source: onnxruntime, com.microsoft."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Operand, Source, Target, gather_map, inp, out, scratch
from pyruntime.kernels.nbits import Experts, can_deal_out, expert_product
from pyruntime.kernels.packed import integers, unpacked_view
from pyruntime.kernels.product import Product
from pyruntime.ops.base import Op, Unsupported, op
from pyruntime.ops.contrib._experts import (
    Activation,
    activate,
    activation,
    combine,
    expert_matmul,
    flat,
    route,
    routed,
    routing,
)
from pyruntime.ops.contrib._packed import dequantized, unpack, zero_points

_KINDS = ("relu", "gelu", "silu", "swiglu", "identity")

Multiply = Callable[[int, Operand, Operand, int], tuple[Operand, list[Dispatch]]]
"""(which product, its input, experts chosen, pairs that share a row): the result and its dispatches."""


class _Experts(Op):
    """What both have in common.

    y = sum over the chosen experts e of weight · (act(x @ fc1[e]^T + b1[e]) @ fc2[e]^T + b2[e]); with fc3 the
    activation is multiplied by x @ fc3[e]^T + b3[e]; swiglu: `Activation`.
    """

    k = 1
    activation_type = "relu"
    activation_alpha = 1.0
    activation_beta = 0.0
    swiglu_fusion = 0
    swiglu_limit: float | None = None
    swiglu_limit_after_activation = 0
    use_sparse_mixer = 0
    normalize_routing_weights = 0

    @property
    def form(self) -> Activation:
        """The activation."""
        fusion, limit = self.swiglu_fusion, self.swiglu_limit
        after = bool(self.swiglu_limit_after_activation)
        return Activation(self.activation_type, self.activation_alpha, self.activation_beta, fusion, limit, after)

    def check(self, x: TensorType, logits: TensorType, rows: int, fc3: bool) -> None:
        """Attributes, and the shapes of x and the router's logits. Raises InvalidGraph."""
        if self.activation_type not in _KINDS:
            self.fail(f"an activation_type of {', '.join(_KINDS)}", self.activation_type)
        if self.use_sparse_mixer:
            self.fail("use_sparse_mixer=0; its routing is not implemented", 1)
        if x.rank not in (2, 3) or logits.rank != 2 or logits.shape[0] * x.shape[-1] != x.size:
            self.fail("an input [..., H] and router_probs [tokens, experts]", f"{x} and {logits}")
        if not 1 <= self.k <= logits.shape[1]:
            self.fail(f"k from 1 to {logits.shape[1]}, the experts", self.k)
        if self.activation_type == "swiglu" and not fc3 and (self.swiglu_fusion not in (1, 2) or rows % 2):
            self.fail("swiglu_fusion 1 or 2 and an even number of rows of fc1, or fc3", self.swiglu_fusion)

    def check_biases(self, experts: int, biases: Sequence[TensorType | None], rows: Sequence[int]) -> None:
        """The biases of the three products, of which each has so many rows. Raises InvalidGraph."""
        for bias, count in zip(biases, rows, strict=True):
            if bias is not None and bias.shape != (experts, count):
                self.fail(f"a bias of shape {[experts, count]}", bias)

    def inner(self, rows: int, fc3: bool) -> int:
        """Columns of the second product's input, `rows` being those of fc1."""
        return rows // 2 if self.activation_type == "swiglu" and not fc3 else rows

    def mixed(
        self,
        x: Array,
        chosen: Array,
        shares: Array,
        weights: Callable[[int, int], Array | None],
        biases: tuple[Array | None, ...],
    ) -> Array:
        """The output on NumPy; `weights(i, e)`: those of product i (0 to 2) of expert e in float32, None without."""
        rows = x.reshape(-1, x.shape[-1]).astype(np.float32)
        y = np.zeros((rows.shape[0], x.shape[-1]), np.float32)

        def product(i: int, expert: int, left: Array) -> Array | None:
            weight, bias = weights(i, expert), biases[i]
            if weight is None:
                return None
            made: Array = left @ weight.T
            return made if bias is None else made + bias[expert].astype(np.float32)

        for expert in np.unique(chosen):
            tokens, slot = np.nonzero(chosen == expert)
            first = product(0, int(expert), rows[tokens])
            assert first is not None
            hidden = activate(self.form, first, product(2, int(expert), rows[tokens]))
            second = product(1, int(expert), hidden)
            assert second is not None
            y[tokens] += shares[tokens, slot, None] * second
        return y.reshape(x.shape).astype(x.dtype)

    def dispatches(
        self,
        target: Target,
        x: TensorType,
        logits: TensorType,
        scores: Operand | None,
        normalize: bool,
        sizes: tuple[int, int],
        biases: tuple[Operand | None, ...],
        multiply: Multiply,
        fc3: bool,
    ) -> tuple[Dispatch, ...]:
        """The kernels, the products of weights left to `multiply`. `sizes`: rows of fc1, columns of fc2."""
        tokens, experts = logits.shape
        pairs, wide = tokens * self.k, x.shape[-1]
        chosen, choose = routed(target, inp(1, logits), tokens, experts, self.k)
        shares = scratch(DType.FLOAT, pairs)
        softmax = scores is None
        made = [choose, route(target, shares, chosen, scores or inp(1, logits), experts, self.k, softmax, normalize)]
        rows = flat(inp(0, x), tokens, wide)
        first, more = multiply(0, rows, chosen, self.k)
        made += more
        third = None
        if fc3:
            third, more = multiply(2, rows, chosen, self.k)
            made += more
        hidden = scratch(DType.FLOAT, pairs, sizes[1])
        made.append(activation(target, hidden, self.form, chosen, first, biases[0], third, biases[2]))
        second, more = multiply(1, hidden, chosen, 1)
        y = flat(out(0, x.with_shape(*x.shape)), tokens, wide)
        return (*made, *more, combine(target, y, chosen, shares, second, biases[1], self.k))


@op("MoE", opsets=range(1, 2), domain="com.microsoft")
class MoE(_Experts):
    """fc1: [E, I, H] (2I where swiglu is fused), fc2: [E, H, I], fc3: [E, I, H], biases [E, rows]; all of x's type.

    Weights of experts: the softmax over all of them, which add up to 1 where normalize_routing_weights.
    """

    k: int = 1
    activation_type: str = "relu"
    activation_alpha: float = 1.0
    activation_beta: float = 0.0
    normalize_routing_weights: int = 0
    swiglu_fusion: int = 0
    swiglu_limit: float | None = None
    swiglu_limit_after_activation: int = 0
    use_sparse_mixer: int = 0

    def infer(
        self,
        x: TensorType,
        logits: TensorType,
        fc1: TensorType,
        b1: TensorType | None,
        fc2: TensorType,
        b2: TensorType | None = None,
        fc3: TensorType | None = None,
        b3: TensorType | None = None,
    ) -> tuple[TensorType, ...]:
        self.same_dtype(x, logits, fc1, b1, fc2, b2, fc3, b3)
        if fc1.rank != 3 or fc2.rank != 3:
            self.fail("weights [experts, rows, columns]", f"{fc1} and {fc2}")
        self.check(x, logits, fc1.shape[1], fc3 is not None)
        experts, wide, inner = logits.shape[1], x.shape[-1], self.inner(fc1.shape[1], fc3 is not None)
        for weight, wanted in ((fc1, (experts, fc1.shape[1], wide)), (fc2, (experts, wide, inner))):
            if weight.shape != wanted:
                self.fail(f"weights of shape {list(wanted)}", weight)
        if fc3 is not None and fc3.shape != (experts, inner, wide):
            self.fail(f"an fc3 of shape {[experts, inner, wide]}", fc3)
        self.check_biases(experts, (b1, b2, b3), (fc1.shape[1], wide, inner))
        return (x.with_shape(*x.shape),)

    def evaluate(self, x: Array, logits: Array, *rest: Array | None) -> tuple[Array, ...]:
        fc1, b1, fc2, b2, fc3, b3 = (*rest, None, None, None, None)[:6]
        chosen, shares = routing(logits, self.k, bool(self.normalize_routing_weights), None)
        held = (fc1, fc2, fc3)

        def weights(i: int, expert: int) -> Array | None:
            found = held[i]
            return None if found is None else found[expert].astype(np.float32)

        return (self.mixed(x, chosen, shares, weights, (b1, b2, b3)),)

    def lower(self, target: Target, x: TensorType, logits: TensorType, *rest: Any) -> tuple[Dispatch, ...]:
        self.infer(x, logits, *rest)
        fc1, _, fc2, _, fc3, _ = (*rest, None, None, None, None)[:6]
        given = {2 + i: t for i, t in enumerate(rest) if t is not None}
        pairs = logits.shape[0] * self.k

        def multiply(i: int, a: Operand, chosen: Operand, share: int) -> tuple[Operand, list[Dispatch]]:
            weight = given[2 + 2 * i]
            y = scratch(DType.FLOAT, pairs, weight.shape[1])
            return y, [expert_matmul(target, y, a, inp(2 + 2 * i, weight), chosen, share)]

        biases = tuple(inp(i, given[i]) if i in given else None for i in (3, 5, 7))
        sizes = (fc1.shape[1], fc2.shape[2])
        normalize = bool(self.normalize_routing_weights)
        return self.dispatches(target, x, logits, None, normalize, sizes, biases, multiply, fc3 is not None)


@op("QMoE", opsets=range(1, 2), domain="com.microsoft")
class QMoE(_Experts):
    """MoE whose weights are packed integers of 2, 4 or 8 bits, [E, rows, columns · bits / 8], low bits first.

    Scales: [E, rows, columns / block_size], or [E, rows] without block_size. Zero points: packed as weights, [E, rows,
    ceil(blocks · bits / 8)], or [E, ceil(rows · bits / 8)]; absent: half of the range. Weights of experts: a softmax
    over those chosen; with router_weights these, which add up to 1 where normalize_routing_weights.
    """

    k: int = 1
    accuracy_level: int = 0
    activation_type: str = "relu"
    activation_alpha: float = 1.0
    activation_beta: float = 0.0
    block_size: int | None = None
    expert_weight_bits: int = 4
    fc1_expert_weight_bits: int | None = None
    fc2_expert_weight_bits: int | None = None
    fc3_expert_weight_bits: int | None = None
    normalize_routing_weights: int = 0
    quant_type: str = "int"
    swiglu_fusion: int = 0
    swiglu_limit: float | None = None
    swiglu_limit_after_activation: int = 0
    use_sparse_mixer: int = 0
    weights_prepacked: int = -1

    def bits(self, i: int) -> int:
        """Of the weights of product i (0 to 2)."""
        own = (self.fc1_expert_weight_bits, self.fc2_expert_weight_bits, self.fc3_expert_weight_bits)[i]
        return own or self.expert_weight_bits

    def columns(self, i: int, weight: TensorType) -> int:
        """Columns of product i as unpacked."""
        return weight.shape[2] * 8 // self.bits(i)

    def infer(
        self,
        x: TensorType,
        logits: TensorType,
        fc1: TensorType,
        scales1: TensorType | None,
        b1: TensorType | None,
        fc2: TensorType,
        scales2: TensorType | None = None,
        b2: TensorType | None = None,
        fc3: TensorType | None = None,
        scales3: TensorType | None = None,
        b3: TensorType | None = None,
        zeros1: TensorType | None = None,
        zeros2: TensorType | None = None,
        zeros3: TensorType | None = None,
        router: TensorType | None = None,
        global1: TensorType | None = None,
        global2: TensorType | None = None,
        global3: TensorType | None = None,
        a_scale1: TensorType | None = None,
        a_scale2: TensorType | None = None,
        a_scale3: TensorType | None = None,
    ) -> tuple[TensorType, ...]:
        further = (global1, global2, global3, a_scale1, a_scale2, a_scale3)
        if self.quant_type != "int" or any(t is not None for t in further):
            self.fail("quant_type='int' without further scales", self.quant_type)
        experts, wide = logits.shape[1], x.shape[-1]
        self.check(x, logits, fc1.shape[1] if fc1.rank == 3 else 0, fc3 is not None)
        inner = self.inner(fc1.shape[1], fc3 is not None)
        self.check_biases(experts, (b1, b2, b3), (fc1.shape[1], wide, inner))
        self._check_weights(0, (experts, fc1.shape[1], wide), fc1, scales1, zeros1)
        self._check_weights(1, (experts, wide, inner), fc2, scales2, zeros2)
        if fc3 is not None:
            self._check_weights(2, (experts, inner, wide), fc3, scales3, zeros3)
        return (x.with_shape(*x.shape),)

    def _check_weights(
        self,
        i: int,
        shape: tuple[int, int, int],
        weight: TensorType,
        scales: TensorType | None,
        zeros: TensorType | None,
    ) -> None:
        """Weights of product i (0 to 2), of this shape when unpacked. Raises InvalidGraph."""
        experts, rows, columns = shape
        bits, block = self.bits(i), self.block_size or columns
        if bits not in (2, 4, 8):
            self.fail("weights of 2, 4 or 8 bits", bits)
        wanted = (experts, rows, columns * bits // 8)
        if weight.dtype is not DType.UINT8 or weight.shape != wanted:
            self.fail(f"fc{i + 1} weights of uint8{list(wanted)}", weight)
        blocks = -(-columns // block)
        if scales is None or scales.size != experts * rows * blocks:
            self.fail(f"{experts * rows * blocks} fc{i + 1} scales", scales)
        packed = experts * (rows * -(-blocks * bits // 8) if self.block_size else -(-rows * bits // 8))
        if zeros is not None and (zeros.dtype is not DType.UINT8 or zeros.size != packed):
            self.fail(f"{packed} bytes of fc{i + 1} zero points", zeros)

    def evaluate(self, x: Array, logits: Array, *rest: Array | None) -> tuple[Array, ...]:
        given = (*rest, *(None,) * 19)[:19]
        router = given[12]
        # Over those chosen alone, the softmax over all is what adds up to 1.
        normalize = router is None or bool(self.normalize_routing_weights)
        chosen, shares = routing(logits, self.k, normalize, router)

        def weights(i: int, expert: int) -> Array | None:
            data, scales, zeros = given[3 * i], given[3 * i + 1], given[9 + i]
            if data is None or scales is None:
                return None
            rows, bits = data.shape[1], self.bits(i)
            columns = data.shape[2] * 8 // bits
            block = self.block_size or columns
            blocks = -(-columns // block)
            own = None if zeros is None else zeros.reshape(data.shape[0], -1)[expert]
            if own is not None and not self.block_size:
                own = unpack(own, bits)[:rows].astype(np.float32)
            zero = zero_points(own, rows, blocks, bits)
            padded = np.pad(data[expert], ((0, 0), (0, blocks * block * bits // 8 - data.shape[2])))
            scale = scales.reshape(data.shape[0], rows, blocks)[expert]
            return dequantized(padded.reshape(rows, blocks, -1), scale, zero, bits, None, columns)

        return (self.mixed(x, chosen, shares, weights, (given[2], given[5], given[8])),)

    def lower(self, target: Target, x: TensorType, logits: TensorType, *rest: Any) -> tuple[Dispatch, ...]:
        self.infer(x, logits, *rest)
        given: Any = (*rest, *(None,) * 19)[:19]
        fc3 = given[6] is not None
        pairs, experts = logits.shape[0] * self.k, logits.shape[1]

        def multiply(i: int, a: Operand, chosen: Operand, share: int) -> tuple[Operand, list[Dispatch]]:
            weight, scales, zeros = given[3 * i], given[3 * i + 1], given[9 + i]
            rows, columns, bits = weight.shape[1], self.columns(i, weight), self.bits(i)
            block = self.block_size or columns
            if columns % block or not can_deal_out(block, bits):
                raise Unsupported(f"rows of {columns} weights of {bits} bits in blocks of {block} are for the host")
            made: list[Dispatch] = []
            zero = None if zeros is None else inp(11 + i, zeros)
            if zero is not None and not self.block_size:
                zero = scratch(DType.FLOAT, experts * rows)
                packed = unpacked_view(inp(11 + i, zeros), bits)
                fields, values = (("rows", "u32"), ("row", "u32")), {"rows": rows, "row": packed.type.size // experts}
                code = "return f32(load_x(i / params.rows * params.row + i % params.rows));"
                made.append(gather_map(target, "unpack_zeros", zero, [Source("x", packed)], code, fields, values))
            b = integers(inp(2 + 3 * i, weight), inp(3 + 3 * i, scales), zero, None, bits, block, columns)
            y = scratch(DType.FLOAT, pairs, rows)
            product = Product(pairs, rows, columns, trans_b=True)
            return y, [*made, *expert_product(target, y, a, b, product, Experts(chosen, experts, share))]

        biases = tuple(inp(2 + i, given[i]) if given[i] is not None else None for i in (2, 5, 8))
        sizes = (given[0].shape[1], self.columns(1, given[3]))
        scores = inp(14, given[12]) if given[12] is not None else None
        normalize = scores is None or bool(self.normalize_routing_weights)
        return self.dispatches(target, x, logits, scores, normalize, sizes, biases, multiply, fc3)
