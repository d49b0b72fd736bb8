"""Selection of the next token from logits, as an ONNX graph that runs on the model's device.

With x the selected row of the logits in float32, and c the token counts, for each sequence:

    operators     x ← f(x) or f(x, c), in sequence: custom operators
    repetition    x ← x · r where x < 0 else x / r        where c ≠ 0
    frequency     x ← x - f · max(c, 0)
    presence      x ← x - q                               where c > 0
    mask          x ← -∞                                  where not mask
    greedy        id = argmax x, the first of equal ones; the rest is skipped
    temperature   x ← x / t
    top-k         keep x ≥ the k-th greatest x; k = 0 keeps all
    top-p         p = softmax(x); keep i while the sum of greater p is < top_p; the first is always kept
    min-p         keep p ≥ min_p · max p
    draw          C = running sum of the kept p; id = the first kept i with C_i > u · C_last

`log_probability` is the log softmax of the model's logits at the id, before penalties, mask and temperature. Order and
results of the filters are those of transformers' logits processors and warpers, except that among equal probabilities
at the limit of top-p, those with lower ids are kept.

Sorting takes most of the time; `SamplerOptions.candidates` limits it.
Source: Holtzman et al. 2019 (top-p), Keskar et al. 2019 (repetition), transformers' generation/logits_process.py
(order), OpenAI's API (presence, frequency).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyruntime.errors import InvalidArgument
from pyruntime.ir import DType
from pyruntime.onnx.importer.attributes import signature
from pyruntime.onnx.writer import ModelWriter
from pyruntime.ops.custom import CustomOp, input_names

__all__ = ["EVERY", "SamplerOptions", "sampler_model"]

EVERY = -1
"""Value of `candidates`: sort the whole vocabulary."""

_IDS = {"int64": DType.INT64, "int32": DType.INT32}
_LARGEST_DRAW = float(np.float32(1) - np.float32(2**-24))
_SMALLEST_P = 1e-30


@dataclass(frozen=True)
class SamplerOptions:
    """Options that determine a sampler's graph. Temperature and similar values are inputs of the graph.

    Attributes:
        greedy: ArgMax, without sampling and filters.
        dtype: element type of the logits, 'float32' or 'float16'.
        candidates: number of the greatest logits that are sorted. 0: none, without inputs top_k and top_p. n > 0: exact
            for 1 <= top_k <= n; top_k = 0 means n. EVERY: any top_k and top_p; sorting a large vocabulary takes
            hundreds of dispatches.
        penalties: add the inputs repetition, presence, frequency and counts, and the output counts_out.
        mask: add the input mask, for constraints.
        rows: add the input row, which selects a row for each sequence instead of the last.
        log_probability: add that output.
        top: number of most probable tokens in additional outputs; 0: no such outputs.
        ids: type of the output ids, 'int64' or 'int32', as the decoder expects it.
        operators: custom operators of x float32 [batch, vocab], or of x and counts; they return x.
    """

    greedy: bool = False
    dtype: str = "float32"
    candidates: int = 256
    penalties: bool = False
    mask: bool = False
    rows: bool = False
    log_probability: bool = True
    top: int = 0
    ids: str = "int64"
    operators: tuple[CustomOp, ...] = ()

    @property
    def counts(self) -> bool:
        """True if tokens are counted: the graph has an input counts and an output counts_out."""
        return self.penalties or any(len(input_names(type(op), 1)) > 1 for op in self.operators)


def sampler_model(options: SamplerOptions | None = None) -> bytes:
    """Build an ONNX model that selects the next token by this module's formula.

    Inputs, in order, depending on the options:
        logits            float32 or float16 [batch, sequence, vocab]
        row               int64 [batch]; with `rows`
        uniform           float32 [batch], in [0, 1); not if greedy, like the next four
        temperature       float32 [], > 0
        top_k             int64 []; with candidates
        top_p             float32 [], in (0, 1]; with candidates
        min_p             float32 [], in [0, 1]
        repetition, presence, frequency    float32 []; no effect at 1, 0, 0; with `penalties`
        counts            int32 [batch, vocab]: how often each token was generated; -1: only the prompt has it, so that
                          repetition applies, presence and frequency do not; with `penalties`
        mask              bool [batch, vocab], true for allowed tokens, at least one in each row; with `mask`

    Outputs:
        ids               int64 or int32 [batch, 1]
        log_probability   float32 [batch, 1]; with `log_probability`
        top_ids           int64 [batch, n], n = min(top, vocab): the most probable tokens, descending; with `top`
        top_log_probabilities    float32 [batch, n]: log softmax of the model's logits; with `top`
        counts_out        int32 [batch, vocab]: updated counts; with counts

    Raises:
        InvalidArgument: another dtype or type of ids, `candidates` < 0 other than EVERY, or `top` < 0.
    """
    options = options or SamplerOptions()
    _check(options)
    writer = ModelWriter("sampler")
    dtype = DType.FLOAT if options.dtype == "float32" else DType.FLOAT16
    writer.input("logits", dtype, ("batch", "sequence", "vocab"))
    own = x = _row(writer, options)
    if options.counts:
        writer.input("counts", DType.INT32, ("batch", "vocab"))
    for op in options.operators:
        given = [x, "counts"][: len(input_names(type(op), 1))]
        values = {name: getattr(op, name) for name in signature(type(op)).annotations}
        x = writer.node(op.op_type, *given, domain=op.domain, **{k: v for k, v in values.items() if v is not None})
    if options.penalties:
        x = _penalized(writer, x)
    if options.mask:
        writer.input("mask", DType.BOOL, ("batch", "vocab"))
        x = writer.node("Where", "mask", x, writer.constant(-np.inf, np.float32))
    chosen = "ids" if options.ids == "int64" else "chosen"
    if options.greedy:
        writer.node("ArgMax", x, axis=1, keepdims=1, name=chosen)
    else:
        _draw(writer, x, options.candidates, chosen)
    if chosen != "ids":
        writer.node("Cast", chosen, to=_IDS[options.ids].code, name="ids")
    writer.output("ids", _IDS[options.ids], ("batch", 1))
    _probabilities(writer, own, chosen, options)
    if options.counts:
        _count(writer, chosen)
    return writer.model()


def _check(options: SamplerOptions) -> None:
    if options.dtype not in ("float32", "float16"):
        raise InvalidArgument(f"sampler_model: expected dtype 'float32' or 'float16', got {options.dtype!r}")
    if options.candidates < EVERY:
        raise InvalidArgument(f"sampler_model: expected candidates >= 0, or EVERY (-1), got {options.candidates}")
    if options.ids not in _IDS:
        raise InvalidArgument(f"sampler_model: expected ids 'int64' or 'int32', got {options.ids!r}")
    if options.top < 0:
        raise InvalidArgument(f"sampler_model: expected top >= 0, got {options.top}")


def _probabilities(writer: ModelWriter, own: str, chosen: str, options: SamplerOptions) -> None:
    """Add the outputs with the model's own probabilities."""
    if not options.log_probability and not options.top:
        return
    total = writer.node("ReduceLogSumExp", own, writer.constant([1], np.int64), keepdims=1)
    if options.log_probability:
        writer.node("Sub", writer.node("GatherElements", own, chosen, axis=1), total, name="log_probability")
        writer.output("log_probability", DType.FLOAT, ("batch", 1))
    if options.top:
        greatest, order = _sorted(writer, own, options.top)
        writer.node("Identity", order, name="top_ids")
        writer.node("Sub", greatest, total, name="top_log_probabilities")
        writer.output("top_ids", DType.INT64, ("batch", "top"))
        writer.output("top_log_probabilities", DType.FLOAT, ("batch", "top"))


def _row(writer: ModelWriter, options: SamplerOptions) -> str:
    """Return float32 [batch, vocab]: the selected row of the logits."""
    if options.rows:
        writer.input("row", DType.INT64, ("batch",))
        place = writer.node("Unsqueeze", "row", writer.constant([1], np.int64))
        x = writer.node("GatherND", "logits", place, batch_dims=1)
    else:
        x = writer.node("Gather", "logits", writer.constant(-1, np.int64), axis=1)
    return x if options.dtype == "float32" else writer.cast(x, DType.FLOAT)


def _penalized(writer: ModelWriter, x: str) -> str:
    for name in ("repetition", "presence", "frequency"):
        writer.input(name, DType.FLOAT, ())
    zero, none = writer.constant(0, np.int32), writer.constant(0, np.float32)
    seen = writer.node("Not", writer.node("Equal", "counts", zero))
    less = writer.node(
        "Where", writer.node("Less", x, none), writer.node("Mul", x, "repetition"), writer.node("Div", x, "repetition")
    )
    x = writer.node("Where", seen, less, x)
    times = writer.cast(writer.node("Max", "counts", zero), DType.FLOAT)
    x = writer.node("Sub", x, writer.node("Mul", times, "frequency"))
    present = writer.node("Where", writer.node("Greater", "counts", zero), "presence", none)
    return writer.node("Sub", x, present)


def _draw(writer: ModelWriter, x: str, candidates: int, chosen: str) -> None:
    """Add the value `chosen`: a sample from x [batch, vocab] after the filters."""
    writer.input("uniform", DType.FLOAT, ("batch",))
    writer.input("temperature", DType.FLOAT, ())
    axis, ones = writer.constant(1, np.int64), writer.constant([1], np.int64)
    zero = writer.constant(0, np.float32)
    x = writer.node("Div", x, "temperature")
    order = ""
    if candidates:
        writer.input("top_k", DType.INT64, ())
        writer.input("top_p", DType.FLOAT, ())
        x, order = _sorted(writer, x, candidates)
    p = writer.node("Exp", writer.node("Sub", x, writer.node("ReduceMax", x, ones, keepdims=1)))
    if candidates:
        p = _top_k(writer, x, p)
        total = writer.node("ReduceSum", p, ones, keepdims=1)
        before = writer.node("CumSum", writer.node("Div", p, total), axis, exclusive=1)
        least = writer.node("Max", "top_p", writer.constant(_SMALLEST_P, np.float32))
        p = writer.node("Where", writer.node("Less", before, least), p, zero)
    writer.input("min_p", DType.FLOAT, ())
    p = writer.node("Where", writer.node("GreaterOrEqual", p, "min_p"), p, zero)
    sums = writer.node("CumSum", p, axis)
    last = writer.node("Gather", sums, writer.constant([-1], np.int64), axis=1)
    draw = writer.node("Min", "uniform", writer.constant(_LARGEST_DRAW, np.float32))
    threshold = writer.node("Mul", writer.node("Unsqueeze", draw, ones), last)
    # Sums of parallel scans are not strictly monotonic, so dropped tokens are excluded explicitly.
    beyond = writer.node(
        "Where", writer.node("Greater", sums, threshold), writer.constant(2, np.float32), writer.constant(1, np.float32)
    )
    beyond = writer.node("Where", writer.node("Greater", p, zero), beyond, zero)
    place = writer.node("ArgMax", beyond, axis=1, keepdims=1, name="" if candidates else chosen)
    if candidates:
        writer.node("GatherElements", order, place, axis=1, name=chosen)


def _sorted(writer: ModelWriter, x: str, candidates: int) -> tuple[str, str]:
    """Return the greatest elements of x in descending order, and their ids."""
    size = writer.node("Gather", writer.node("Shape", x), writer.constant([1], np.int64))
    if candidates != EVERY:
        size = writer.node("Min", size, writer.constant([candidates], np.int64))
    return writer.pair("TopK", x, size, axis=1)


def _top_k(writer: ModelWriter, x: str, p: str) -> str:
    """Return p where x, in descending order, is at least its top_k-th element; else 0."""
    one, zero = writer.constant(1, np.int64), writer.constant(0, np.int64)
    size = writer.node("Gather", writer.node("Shape", x), one)
    k = writer.node("Where", writer.node("Greater", "top_k", zero), writer.node("Min", "top_k", size), size)
    place = writer.node("Unsqueeze", writer.node("Sub", k, one), zero)
    least = writer.node("Gather", x, place, axis=1)
    return writer.node("Where", writer.node("GreaterOrEqual", x, least), p, writer.constant(0, np.float32))


def _count(writer: ModelWriter, chosen: str) -> None:
    """Add the output counts_out: counts, incremented at the new ids."""
    length = writer.node("Gather", writer.node("Shape", "counts"), writer.constant(1, np.int64))
    every = writer.node("Range", writer.constant(0, np.int64), length, writer.constant(1, np.int64))
    here = writer.node("Equal", every, chosen)
    more = writer.node("Add", writer.node("Max", "counts", writer.constant(0, np.int32)), writer.constant(1, np.int32))
    writer.node("Where", here, more, "counts", name="counts_out")
    writer.output("counts_out", DType.INT32, ("batch", "vocab"))
