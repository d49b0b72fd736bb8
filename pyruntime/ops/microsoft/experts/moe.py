"""MoE and QMoE: mixture of experts, where a router selects k experts per token. Source: onnxruntime, com.microsoft."""

from __future__ import annotations

from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Operand, Source, Target, gather_map, out, scratch
from pyruntime.kernels.products.description import Product
from pyruntime.kernels.products.nbits import Experts, can_split, expert_product
from pyruntime.kernels.products.packed_weights import integers, unpacked_view
from pyruntime.ops.base import Op, Unsupported, attributes, op
from pyruntime.ops.microsoft.experts.experts import (
    Activation,
    activate,
    activation,
    chosen_experts,
    combine,
    expert_matmul,
    route,
    routing,
)
from pyruntime.ops.microsoft.products.packed import dequantized, unpack, zero_points
from pyruntime.ops.operands import bound, index_of, named, reshaped

T = TypeVar("T")


class Layer(NamedTuple, Generic[T]):
    """One of the products of an expert, as types, arrays or operands: weights [E, rows, ·] and bias [E, rows].

    `number` is 1, 2 or 3 for fc1, fc2 and fc3. `scales` and `zeros` belong to packed weights.
    """

    number: int
    weights: T
    bias: T | None
    scales: T | None = None
    zeros: T | None = None


@attributes
class MixtureOp(Op):
    """Base of MoE and QMoE.

    y = sum over the selected experts e of weight · (act(x @ fc1[e]^T + b1[e]) @ fc2[e]^T + b2[e]). With fc3 the
    activation is multiplied by x @ fc3[e]^T + b3[e]. For swiglu see `Activation`.
    """

    k: int = 1
    activation_type: Annotated[str, "relu", "gelu", "silu", "swiglu", "identity"] = "relu"
    activation_alpha: float = 1.0
    activation_beta: float = 0.0
    normalize_routing_weights: int = 0
    swiglu_fusion: int = 0
    swiglu_limit: float | None = None
    swiglu_limit_after_activation: int = 0
    use_sparse_mixer: int = 0

    def layers(self, *inputs: Any) -> tuple[Layer[Any], Layer[Any], Layer[Any] | None]:
        """Return the layers of fc1, fc2 and, if present, fc3."""
        given = self.operands(*inputs)._asdict()

        def layer(i: int) -> Layer[Any]:
            return Layer(i, given[f"fc{i}"], given[f"b{i}"], given.get(f"scales{i}"), given.get(f"zeros{i}"))

        return layer(1), layer(2), None if given["fc3"] is None else layer(3)

    def router(self, *inputs: Any) -> tuple[Any, bool]:
        """Return routing weights given as an input (None: use softmax), and whether to normalize the selected ones."""
        raise NotImplementedError

    def check_weights(self, layer: Layer[TensorType], shape: tuple[int, int, int]) -> None:
        """Check the weights of a layer; `shape` is that before packing. Raises InvalidGraph."""
        raise NotImplementedError

    def weights_of(self, layer: Layer[Array], expert: int) -> Array:
        """Return the weights of one expert in a layer, float32."""
        raise NotImplementedError

    def multiply(
        self, target: Target, layer: Layer[Operand], a: Operand, experts: Experts
    ) -> tuple[Operand, list[Dispatch]]:
        """Return a layer's float32 product without bias, and the dispatches that compute it."""
        raise NotImplementedError

    @property
    def form(self) -> Activation:
        """The activation."""
        fusion, limit = self.swiglu_fusion, self.swiglu_limit
        after = bool(self.swiglu_limit_after_activation)
        return Activation(self.activation_type, self.activation_alpha, self.activation_beta, fusion, limit, after)

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        x, logits = inputs[:2]
        first, second, third = layers = self.layers(*inputs)
        weights = [layer.weights for layer in layers if layer is not None]
        if any(w.rank != 3 for w in weights):
            self.fail("weights [experts, rows, columns]", " and ".join(map(str, weights)))
        rows = first.weights.shape[1]
        self._check(x, logits, rows, third is not None)
        experts, wide = logits.shape[1], x.shape[-1]
        inner = self._inner(rows, third)
        for layer, height, width in ((first, rows, wide), (second, wide, inner), (third, inner, wide)):
            if layer is None:
                continue
            self.check_weights(layer, (experts, height, width))
            if layer.bias is not None and layer.bias.shape != (experts, height):
                self.fail(f"a bias of shape {[experts, height]}", layer.bias)
        return (x.with_shape(*x.shape),)

    def _inner(self, rows: int, third: Layer[Any] | None) -> int:
        """Return the number of columns of the second product's input; `rows` are those of fc1."""
        return rows // 2 if self.activation_type == "swiglu" and third is None else rows

    def _check(self, x: TensorType, logits: TensorType, rows: int, fc3: bool) -> None:
        """Check the attributes, and the shapes of x and the router's logits. Raises InvalidGraph."""
        if self.use_sparse_mixer:
            self.fail("use_sparse_mixer=0; its routing is not implemented", 1)
        if x.rank not in (2, 3) or logits.rank != 2 or logits.shape[0] * x.shape[-1] != x.size:
            self.fail("an input [..., H] and router_probs [tokens, experts]", f"{x} and {logits}")
        if not 1 <= self.k <= logits.shape[1]:
            self.fail(f"k from 1 to {logits.shape[1]}, the experts", self.k)
        if self.activation_type == "swiglu" and not fc3 and (self.swiglu_fusion not in (1, 2) or rows % 2):
            self.fail("swiglu_fusion 1 or 2 and an even number of rows of fc1, or fc3", self.swiglu_fusion)

    def evaluate(self, *inputs: Any) -> tuple[Array, ...]:
        x, logits = inputs[:2]
        first, second, third = self.layers(*inputs)
        given, normalize = self.router(*inputs)
        chosen, shares = routing(logits, self.k, normalize, given)
        rows = x.reshape(-1, x.shape[-1]).astype(np.float32)
        y = np.zeros_like(rows)

        def product(layer: Layer[Array], expert: int, left: Array) -> Array:
            made: Array = left @ self.weights_of(layer, expert).T
            return made if layer.bias is None else made + layer.bias[expert].astype(np.float32)

        for expert in np.unique(chosen):
            tokens, slot = np.nonzero(chosen == expert)
            left = rows[tokens]
            times = None if third is None else product(third, expert, left)
            hidden = activate(self.form, product(first, expert, left), times)
            y[tokens] += shares[tokens, slot, None] * product(second, expert, hidden)
        return (y.reshape(x.shape).astype(x.dtype),)

    def lower(self, target: Target, *inputs: Any) -> tuple[Dispatch, ...]:
        (y,) = self.infer(*inputs)
        operands = bound(self.operands, inputs)
        first, second, third = self.layers(*operands)
        given, normalize = self.router(*operands)
        x, logits = operands[:2]
        (tokens, experts), k = logits.type.shape, self.k
        wide = y.shape[-1]
        chosen, shares = scratch(DType.UINT32, tokens * k), scratch(DType.FLOAT, tokens * k)
        made = [
            chosen_experts(target, chosen, logits, experts, k),
            route(target, shares, chosen, given or logits, experts, k, given is None, normalize),
        ]

        def product(layer: Layer[Operand], a: Operand, share: int) -> Operand:
            result, more = self.multiply(target, layer, a, Experts(chosen, experts, share))
            made.extend(more)
            return result

        rows = reshaped(x, tokens, wide)
        before = product(first, rows, k)
        times = None if third is None else product(third, rows, k)
        hidden = scratch(DType.FLOAT, tokens * k, self._inner(first.weights.type.shape[1], third))
        third_bias = None if third is None else third.bias
        made.append(activation(target, hidden, self.form, chosen, before, first.bias, times, third_bias))
        after = product(second, hidden, 1)
        made.append(combine(target, reshaped(out(0, y), tokens, wide), chosen, shares, after, second.bias, k))
        return tuple(made)


@op("MoE", opsets=range(1, 2), domain="com.microsoft")
class MoE(MixtureOp):
    """fc1: [E, I, H] (2I rows for fused swiglu), fc2: [E, H, I], fc3: [E, I, H], biases [E, rows]; all of x's type.

    The routing weights are a softmax over all experts; with normalize_routing_weights the selected ones sum to 1.
    """

    operands = named("input router_probs fc1 b1? fc2", optional="b2 fc3 b3")

    def router(self, *inputs: Any) -> tuple[Any, bool]:
        return None, bool(self.normalize_routing_weights)

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        self.same_dtype(*inputs)
        return super().infer(*inputs)

    def check_weights(self, layer: Layer[TensorType], shape: tuple[int, int, int]) -> None:
        if layer.weights.shape != shape:
            self.fail(f"fc{layer.number} weights of shape {list(shape)}", layer.weights)

    def weights_of(self, layer: Layer[Array], expert: int) -> Array:
        weights: Array = layer.weights[expert].astype(np.float32)
        return weights

    def multiply(
        self, target: Target, layer: Layer[Operand], a: Operand, experts: Experts
    ) -> tuple[Operand, list[Dispatch]]:
        y = scratch(DType.FLOAT, experts.chosen.type.size, layer.weights.type.shape[1])
        return y, [expert_matmul(target, y, a, layer.weights, experts)]


@op("QMoE", opsets=range(1, 2), domain="com.microsoft")
class QMoE(MixtureOp):
    """MoE with weights packed as integers of 2, 4 or 8 bits, [E, rows, columns · bits / 8], low bits first.

    Scales: [E, rows, columns / block_size], or [E, rows] without block_size. Zero points: packed like the weights, [E,
    rows, ceil(blocks · bits / 8)] or [E, ceil(rows · bits / 8)]; default: half of the range. The routing weights are a
    softmax over the selected experts, or router_weights, which normalize_routing_weights scales to sum to 1.
    """

    operands = named(
        "input router_probs fc1 scales1? b1? fc2",
        optional="scales2 b2 fc3 scales3 b3 zeros1 zeros2 zeros3 router_weights"
        " global1 global2 global3 a_scale1 a_scale2 a_scale3",
    )

    accuracy_level: int = 0
    block_size: int | None = None
    expert_weight_bits: int = 4
    fc1_expert_weight_bits: int | None = None
    fc2_expert_weight_bits: int | None = None
    fc3_expert_weight_bits: int | None = None
    quant_type: str = "int"
    weights_prepacked: int = -1

    def router(self, *inputs: Any) -> tuple[Any, bool]:
        # A softmax over the selected experts equals the normalized softmax over all.
        given = self.operands(*inputs).router_weights
        return given, given is None or bool(self.normalize_routing_weights)

    def bits(self, layer: Layer[Any]) -> int:
        """Return the bits of a layer's weights."""
        own = (self.fc1_expert_weight_bits, self.fc2_expert_weight_bits, self.fc3_expert_weight_bits)
        return own[layer.number - 1] or self.expert_weight_bits

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        further = inputs[index_of(self.operands, "global1") :]
        if self.quant_type != "int" or any(t is not None for t in further):
            self.fail("quant_type='int' without further scales", self.quant_type)
        return super().infer(*inputs)

    def check_weights(self, layer: Layer[TensorType], shape: tuple[int, int, int]) -> None:
        experts, rows, columns = shape
        _, weight, _, scales, zeros = layer
        name, bits, block = f"fc{layer.number}", self.bits(layer), self.block_size or columns
        if bits not in (2, 4, 8):
            self.fail("weights of 2, 4 or 8 bits", bits)
        wanted = (experts, rows, columns * bits // 8)
        if weight.dtype is not DType.UINT8 or weight.shape != wanted:
            self.fail(f"{name} weights of uint8{list(wanted)}", weight)
        blocks = -(-columns // block)
        if scales is None or scales.size != experts * rows * blocks:
            self.fail(f"{experts * rows * blocks} {name} scales", scales)
        packed = experts * (rows * -(-blocks * bits // 8) if self.block_size else -(-rows * bits // 8))
        if zeros is not None and (zeros.dtype is not DType.UINT8 or zeros.size != packed):
            self.fail(f"{packed} bytes of {name} zero points", zeros)

    def weights_of(self, layer: Layer[Array], expert: int) -> Array:
        _, data, _, scales, zeros = layer
        assert scales is not None
        experts, rows, width = data.shape
        bits = self.bits(layer)
        columns = width * 8 // bits
        block = self.block_size or columns
        blocks = -(-columns // block)
        own = None if zeros is None else zeros.reshape(experts, -1)[expert]
        if own is not None and not self.block_size:
            own = unpack(own, bits)[:rows].astype(np.float32)
        zero = zero_points(own, rows, blocks, bits)
        padded = np.pad(data[expert], ((0, 0), (0, blocks * block * bits // 8 - width)))
        scale = scales.reshape(experts, rows, blocks)[expert]
        return dequantized(padded.reshape(rows, blocks, -1), scale, zero, bits, None, columns)

    def multiply(
        self, target: Target, layer: Layer[Operand], a: Operand, experts: Experts
    ) -> tuple[Operand, list[Dispatch]]:
        _, weights, _, scales, zero = layer
        assert scales is not None
        (count, rows, width), bits = weights.type.shape, self.bits(layer)
        columns = width * 8 // bits
        block = self.block_size or columns
        if columns % block or not can_split(block, bits):
            raise Unsupported(f"no kernel for rows of {columns} weights of {bits} bits in blocks of {block}")
        made: list[Dispatch] = []
        if zero is not None and not self.block_size:
            packed = unpacked_view(zero, bits)
            zero = scratch(DType.FLOAT, count * rows)
            values = {"rows": rows, "row": packed.type.size // count}
            code = "return f32(load_x(i / params.rows * params.row + i % params.rows));"
            made.append(gather_map(target, "unpack_zeros", zero, [Source("x", packed)], code, values))
        pairs = experts.chosen.type.size
        b = integers(weights, scales, zero, None, bits, block, columns)
        y = scratch(DType.FLOAT, pairs, rows)
        made += expert_product(target, y, a, b, Product(pairs, rows, columns, trans_b=True), experts)
        return y, made
