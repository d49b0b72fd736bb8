"""DynamicQuantizeLSTM: LSTM whose weights are of 8 bits. Source: onnxruntime, com.microsoft."""

from __future__ import annotations

from pyruntime.ir import DType, TensorType
from pyruntime.ops.base import op
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.registry import newest


@op("DynamicQuantizeLSTM", opsets=range(1, 2), domain="com.microsoft")
class DynamicQuantizeLSTM(Decomposed):
    """LSTM of w = (W - W_zero) · W_scale and r = (R - R_zero) · R_scale.

    x: float [T, B, I]; W: int8 or uint8 [D, I, 4·H], R: [D, H, 4·H], transposed as against LSTM; their scales and zero
    points: [D], or [D, 4·H], one a column; b: [D, 8·H]; states [D, B, H]; P: [D, 3·H]. Outputs as LSTM has them.

    onnxruntime rounds x and h to 8 bits in each step, a means of its processor; here they stay float32, so results are
    nearer to the model that was quantised.
    """

    activation_alpha: tuple[float, ...] | None = None
    activation_beta: tuple[float, ...] | None = None
    activations: tuple[str, ...] | None = None
    clip: float | None = None
    direction: str = "forward"
    hidden_size: int | None = None
    input_forget: int = 0

    def expand(
        self,
        body: Expansion,
        x: TensorType,
        w: TensorType,
        r: TensorType,
        b: TensorType | None,
        lens: TensorType | None,
        h: TensorType | None,
        c: TensorType | None,
        p: TensorType | None,
        w_scale: TensorType,
        w_zero: TensorType,
        r_scale: TensorType,
        r_zero: TensorType,
    ) -> tuple[TensorType | None, ...]:
        names = ("activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size")
        given = {n: getattr(self, n) for n in (*names, "input_forget")}
        lstm = newest("LSTM", present=tuple(self.wants(i) for i in range(3)), **given)
        weights = self._weights(body, w, w_scale, w_zero), self._weights(body, r, r_scale, r_zero)
        return body.apply(lstm, x, *weights, b, lens, h, c, p)

    def _weights(self, body: Expansion, w: TensorType, scale: TensorType, zero: TensorType) -> TensorType:
        """[D, 4·H, rows] of w [D, rows, 4·H]."""
        if w.rank != 3:
            self.fail("weights [directions, rows, gates]", w)
        directions, _, columns = w.shape
        for given in (scale, zero):
            if given.shape not in ((directions,), (directions, columns)):
                self.fail(f"scales and zero points [{directions}] or [{directions}, {columns}]", given)

        def along(given: TensorType) -> TensorType:
            return body("Reshape", given, body.ints(directions, 1, -1))

        centred = body("Sub", body.cast(w, DType.FLOAT), body.cast(along(zero), DType.FLOAT))
        return body("Transpose", body("Mul", centred, along(scale)), perm=(0, 2, 1))
