"""Recurrent layers to try: shared by the host's tests and the GPU's."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
OUTPUTS = {"LSTM": 3, "GRU": 2, "RNN": 2}

CASES: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "lstm-forward": ("LSTM", {}, ("b",)),
    "lstm-all": ("LSTM", {"direction": "bidirectional"}, ("b", "lens", "h0", "c0", "p")),
    "lstm-lens": ("LSTM", {}, ("b", "lens", "h0", "c0")),
    "lstm-whole": ("LSTM", {"direction": "bidirectional"}, ("b", "h0", "c0", "p")),
    "lstm-reverse-clip": ("LSTM", {"direction": "reverse", "clip": 0.3}, ("b", "lens", "p")),
    "lstm-coupled": ("LSTM", {"input_forget": 1}, ("b", "c0")),
    "lstm-functions": (
        "LSTM",
        {"activations": ["HardSigmoid", "Elu", "Softsign"], "activation_alpha": [0.3, 0.7], "activation_beta": [0.4]},
        ("b",),
    ),
    "gru-forward": ("GRU", {}, ("b",)),
    "gru-all": ("GRU", {"direction": "bidirectional"}, ("b", "lens", "h0")),
    "gru-lens": ("GRU", {"direction": "reverse"}, ("b", "lens", "h0")),
    "gru-whole": ("GRU", {"direction": "bidirectional"}, ("b", "h0")),
    "gru-late-whole": ("GRU", {"direction": "reverse", "linear_before_reset": 1}, ("b", "h0")),
    "gru-late": ("GRU", {"direction": "bidirectional", "linear_before_reset": 1}, ("b", "lens", "h0")),
    "gru-late-plain": ("GRU", {"linear_before_reset": 1}, ()),
    "gru-functions": ("GRU", {"activations": ["Sigmoid", "LeakyRelu"], "activation_alpha": [0.2], "clip": 0.5}, ("b",)),
    "rnn-forward": ("RNN", {}, ()),
    "rnn-all": (
        "RNN",
        {"direction": "bidirectional", "activations": ["Tanh", "Affine"], "activation_alpha": [0.5]},
        ("b", "lens", "h0"),
    ),
    "rnn-lens": ("RNN", {"direction": "reverse"}, ("b", "lens", "h0")),
    "rnn-whole": ("RNN", {"direction": "bidirectional"}, ("b", "h0")),
    "rnn-reverse": (
        "RNN",
        {"direction": "reverse", "activations": ["ScaledTanh"], "activation_alpha": [0.5], "activation_beta": [2.0]},
        ("b",),
    ),
}
"""Name to operator, attributes and the optional inputs given. `whole`: of no sequence the length is given. Where
lengths are, the first sequence has no step."""


def inputs_of(
    case: str, time: int = 5, batch: int = 3, width: int = 4, units: int = 6, layout: int = 0
) -> tuple[str, dict[str, Any], list[Array | None]]:
    """Operator, attributes and inputs of a case."""
    name, attributes, given = CASES[case]
    rng = np.random.default_rng(len(case))
    D = 2 if attributes.get("direction") == "bidirectional" else 1
    rows = GATES[name] * units

    def random(*shape: int) -> Array:
        return (rng.standard_normal(shape) * 0.5).astype(np.float32)

    x, state = random(time, batch, width), (D, batch, units)
    if layout:
        x, state = x.swapaxes(0, 1), (batch, D, units)
    lens = np.arange(batch, dtype=np.int32) % (time + 1)
    lens[-1] = time
    optional: dict[str, Array] = {
        "b": random(D, 2 * rows),
        "lens": lens,
        "h0": random(*state),
        "c0": random(*state),
        "p": random(D, 3 * units),
    }
    order = ["b", "lens", "h0", "c0", "p"][: 5 if name == "LSTM" else 3]
    extra = [optional[key] if key in given else None for key in order]
    while extra and extra[-1] is None:
        extra.pop()
    weights = [random(D, rows, width), random(D, rows, units)]
    return name, {"hidden_size": units, **attributes}, [np.ascontiguousarray(x), *weights, *extra]


def rounded_inputs(
    units: int, batch: int, direction: str, dtype: Any, with_lens: bool, by_column: bool = False
) -> tuple[list[Array | None], dict[str, Any]]:
    """The inputs and attributes of a DynamicQuantizeLSTM of 4 steps that onnxruntime takes."""
    rng = np.random.default_rng(units)
    d = 2 if direction == "bidirectional" else 1
    limits = np.iinfo(dtype)
    sides: list[Any] = []
    for rows in (12, units):
        dims = (d, 4 * units) if by_column else (d,)
        weights = rng.integers(limits.min, limits.max + 1, (d, rows, 4 * units)).astype(dtype)
        scale = (rng.uniform(0.5, 1.5, dims) / 128 / np.sqrt(rows)).astype(np.float32)
        sides.append((weights, scale, np.full(dims, 0 if dtype is np.int8 else 120, dtype)))
    (w, w_scale, w_zero), (r, r_scale, r_zero) = sides
    x = rng.standard_normal((4, batch, 12)).astype(np.float32)
    bias = (rng.standard_normal((d, 8 * units)) / 8).astype(np.float32)
    h, c = (rng.standard_normal((d, batch, units)).astype(np.float32) / 2 for _ in range(2))
    lens = np.resize(np.array([3, 1, 2], np.int32), batch) if with_lens else None
    inputs = [x, w, r, bias, lens, h, c, None, w_scale, w_zero, r_scale, r_zero]
    return inputs, {"direction": direction, "hidden_size": units}


ROUNDED: dict[str, tuple[Any, ...]] = {
    "one loop": (40, 1, "forward", np.int8, False),
    "one loop of two directions": (19, 1, "bidirectional", np.uint8, True),
    "steps": (300, 1, "reverse", np.int8, False, True),
    "steps of a batch": (64, 3, "bidirectional", np.uint8, True, True),
}
"""Arguments of `rounded_inputs`: steps by one dispatch or by one each."""
