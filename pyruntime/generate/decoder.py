"""Decoder models: inputs and outputs by role, and runs whose caches stay on the device.

Names are those of a genai_config.json, or the ones of transformers.js and Optimum: input_ids, attention_mask,
position_ids, num_logits_to_keep, use_cache_branch, past_key_values.* and past.* (also past_conv.*, past_recurrent.*,
past_ssm.*), with present* as the updated caches.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pyruntime.errors import InvalidArgument
from pyruntime.generate.positions import positions_of
from pyruntime.generate.sampling import SamplerOptions, sampler_model
from pyruntime.generate.trimming import LocalCaches, local_caches, turning_model, window_caches
from pyruntime.generate.window import Window
from pyruntime.ir import Array, DType
from pyruntime.onnx.writer import ModelWriter
from pyruntime.session import InferenceSession, OrtValue
from pyruntime.session.api.ortvalue import arrays_of
from pyruntime.session.base import Internals
from pyruntime.session.environment import CPU, WEBGPU

__all__ = ["SLACK", "Cache", "DecoderModel"]

SLACK = 16
"""Default of `DecoderModel.slack`: onnxruntime-genai's value on the CPU."""

_FLOATS, _BYTES = (DType.FLOAT, DType.FLOAT16, DType.BFLOAT16), (DType.UINT8, DType.INT8)
_TYPES = {t.type_string: t for t in (*_FLOATS, *_BYTES, DType.INT64, DType.INT32, DType.BOOL)}


@dataclass
class Cache:
    """The caches of a model, with the tokens that they cover.

    Attributes:
        values: tensors by name of the model's input.
        length: number of tokens.
        mask: attention mask of the tokens that have rows, int64 [batch, rows].
        begin: number of leading tokens whose rows were dropped because no later token attends to them.
    """

    values: dict[str, OrtValue]
    length: int = 0
    mask: Array = field(default_factory=lambda: np.zeros((1, 0), np.int64))
    begin: int = 0


class DecoderModel:
    """A decoder session, which computes logits and updated caches from ids and caches.

    Args:
        session: a decoder with token ids as an input and logits as an output.
        names: the model's names of the roles 'input_ids', 'attention_mask', 'position_ids' and 'logits', where they
            differ.
        caches: the model's past inputs and their present outputs; others are found by name.
        sizes: values of dynamic axes of caches, by symbol, except batch and rows. 'head_size' and 'kv_heads' stand for
            the last and the second axis of caches [batch, heads, rows, size], whatever their symbols.
        slack: rows beyond the window in caches that only hold a window (`sliding_window_cache`); a larger slack moves
            rows less often.

    Raises:
        InvalidArgument: the model has no ids, no logits, or inputs without a known role.
    """

    def __init__(
        self,
        session: InferenceSession,
        names: Mapping[str, str] | None = None,
        caches: Mapping[str, str] | None = None,
        sizes: Mapping[str, int] | None = None,
        slack: int = SLACK,
    ) -> None:
        self.session = session
        self._internals = Internals(session)
        graph = self._internals.model.graph
        self._rows = {name: rows + slack for name, rows in window_caches(graph).items()}
        self._sizes = dict(sizes or {})
        self._inputs = {i.name: i for i in session.get_inputs()}
        self._outputs = {o.name: o for o in session.get_outputs()}
        self._names = {r: r for r in ("input_ids", "attention_mask", "position_ids", "logits")} | dict(names or {})
        self.caches = self._found_caches() | dict(caches or {})
        self._check()
        kinds = {node.op.op_type for node in graph.nodes}
        self.right_padded = "GroupQueryAttention" in kinds
        """True if the model derives lengths from the mask: shorter prompts in a batch are then padded on the right."""
        self.logits_dtype = "float16" if self._outputs[self._names["logits"]].type == "tensor(float16)" else "float32"
        mask, positions = self._names["attention_mask"], self._names["position_ids"]
        self.local: LocalCaches | None = local_caches(graph, self.caches, mask, positions) if self.rewindable else None
        """The caches, if all attention of the model is limited to a window of tokens."""
        self.positions = positions_of(graph, positions)
        """Number of positions that the model supports; None: unknown."""
        self._helpers: dict[Hashable, InferenceSession] = {}

    def _found_caches(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for name in self._outputs:
            if "present" in name:
                tried = [name.replace("present", part) for part in ("past_key_values", "past")]
                found |= {past: name for past in tried if past in self._inputs}
        return found

    def _check(self) -> None:
        for role, among in (("input_ids", self._inputs), ("logits", self._outputs)):
            if self._names[role] not in among:
                raise InvalidArgument(
                    f"expected a decoder with {role} named {self._names[role]!r}; the model has {list(among)}. "
                    "Give its name in `names`"
                )
        roles = {*self._names.values(), "num_logits_to_keep", "use_cache_branch", *self.caches}
        unknown = [n for n in self._inputs if n not in roles]
        if unknown:
            raise InvalidArgument(f"the decoder's inputs {unknown} have no role here; name them in `names` or `caches`")
        lost = [
            n
            for past in self.caches.items()
            for n, a in zip(past, (self._inputs, self._outputs), strict=True)
            if n not in a
        ]
        if lost:
            raise InvalidArgument(f"the model has no caches named {lost}")

    @property
    def logits_name(self) -> str:
        """Name of the output with logits."""
        return self._names["logits"]

    @property
    def ids_name(self) -> str:
        """Name of the input with token ids."""
        return self._names["input_ids"]

    def is_fixed(self, name: str) -> bool:
        """Return whether the model fixes the number of tokens, or of cache rows, in an input."""
        shape = self._inputs[name].shape
        axis = 1 if name == self.ids_name else 2
        return len(shape) > axis and isinstance(shape[axis], int) and name not in self._rows

    @property
    def on_gpu(self) -> bool:
        """True if tensors stay on the GPU between runs."""
        return self.session.get_providers()[0] == WEBGPU

    @property
    def rewindable(self) -> bool:
        """True if every cache has a row for each token, unlike recurrent states."""
        return all(self._grows(name) for name in self.caches)

    def limit(self, window: Window | None) -> int | None:
        """Return the maximum length of a text for the model's positions; None: unlimited.

        Raises:
            InvalidArgument: the window is larger than the model's positions.
        """
        if window and self.positions and window.size > self.positions:
            raise InvalidArgument(
                f"expected a window of at most the {self.positions} positions that the model knows, got {window.size}"
            )
        return None if window else self.positions

    @property
    def chunk(self) -> int:
        """Maximum number of prompt tokens to compute at once."""
        return self.local.chunk if self.local else 1 << 30

    def _grows(self, name: str) -> bool:
        shape = self._inputs[name].shape
        return len(shape) == 4 and not isinstance(shape[2], int) and name not in self._rows

    def cache(self, batch: int) -> Cache:
        """Return an empty cache."""
        values = {}
        for name in self.caches:
            info = self._inputs[name]
            shape = [self._size(name, axis, batch) for axis in range(len(info.shape))]
            dtype = _TYPES[info.type]
            values[name] = OrtValue.ortvalue_from_shape_and_type(shape, dtype.code)
        return Cache(values, 0, np.zeros((batch, 0), np.int64))

    def _size(self, name: str, axis: int, batch: int) -> int:
        """Return the size of an axis of an empty cache. Raises InvalidArgument: the size is unknown."""
        shape = self._inputs[name].shape
        size = shape[axis]
        if isinstance(size, int):
            return size
        if axis == 0:
            return batch
        if size in self._sizes:
            return self._sizes[size]
        if len(shape) == 4 and axis == 2:
            return self._rows.get(name, 0)
        role = {1: "kv_heads", 3: "head_size"}.get(axis) if self._grows(name) or name in self._rows else None
        if role in self._sizes:
            return self._sizes[role]
        raise InvalidArgument(f"the cache {name!r} is {list(shape)}: give {size or role!r} in `sizes`")

    async def step(
        self, ids: Array | OrtValue, cache: Cache, mask: Array | None = None, keep_logits: int = 1
    ) -> tuple[OrtValue, Cache]:
        """Compute ids; return logits [batch, rows, vocab] and the updated cache. `cache` is unchanged.

        Args:
            ids: int64 [batch, n]; a tensor on the GPU stays there.
            mask: int64 [batch, n], 0 where an id is padding.
            keep_logits: rows of logits that are needed; a model may return more.
        """
        (logits,), after = await self._run(ids, cache, mask, [self._names["logits"]], keep_logits)
        return logits, after

    async def prefill(self, ids: Array, cache: Cache, mask: Array | None = None) -> Cache:
        """Return the cache updated with `ids`, without computing logits. Args as for `step`."""
        _, after = await self._run(ids, cache, mask, [], 1)
        return after

    async def _run(
        self, ids: Array | OrtValue, cache: Cache, mask: Array | None, wanted: Sequence[str], keep_logits: int
    ) -> tuple[list[OrtValue], Cache]:
        """Return the outputs `wanted`, and the cache updated with `ids`."""
        batch, n = ids.shape() if isinstance(ids, OrtValue) else ids.shape
        cache = await self._trimmed(cache, n)
        mask = np.ones((batch, n), np.int64) if mask is None else mask
        whole = np.concatenate((cache.mask, mask), axis=1)
        given = {self._names["input_ids"]: ids, **self._extras(cache, whole, n, keep_logits), **cache.values}
        feeds: dict[str, Any] = {}
        for name, value in given.items():
            kind = _TYPES.get(self._inputs[name].type, DType.INT64)
            feeds[name] = value if isinstance(value, OrtValue) else np.asarray(value, kind.numpy)
        outputs = [*wanted, *self.caches.values()]
        made = await self._internals.run_values(feeds, outputs, None, dict.fromkeys(outputs) if self.on_gpu else None)
        states = {past: OrtValue(made[present]) for past, present in self.caches.items()}
        return [OrtValue(made[name]) for name in wanted], Cache(states, cache.length + n, whole, cache.begin)

    def _extras(self, cache: Cache, whole: Array, n: int, keep_logits: int) -> dict[str, Any]:
        """Return the model's inputs other than ids and caches."""
        name = self._names["position_ids"]
        positions = np.maximum(np.cumsum(whole, axis=1) - 1, 0)[:, -n:] if name in self._inputs else None
        made: dict[str, Any] = {
            self._names["attention_mask"]: whole,
            name: positions,
            "use_cache_branch": np.array([cache.length > 0]),
            "num_logits_to_keep": np.asarray(keep_logits),
        }
        return {name: value for name, value in made.items() if name in self._inputs}

    async def _trimmed(self, cache: Cache, new: int) -> Cache:
        """Return the cache without the rows that neither `new` tokens nor later ones attend to."""
        local, rows = self.local, cache.length - cache.begin
        gone = local.dropped(rows, new) if local and cache.mask.all() else 0
        if not local or not gone:
            return cache
        values = {}
        for name, value in cache.values.items():
            if name in local.turns:
                values[name] = await self._turned(value, gone, local.rotation(name, gone, value.shape()[3]))
            else:
                values[name] = await self._cut(value, gone, 1 << 40)
        return Cache(values, cache.length, cache.mask[:, gone:], cache.begin + gone)

    async def _turned(self, value: OrtValue, first: int, turn: Array) -> OrtValue:
        """Return a cache's rows from `first` on, with keys rotated back to positions from 0."""
        row = np.array([first], np.int64)
        return await self._moved("turn", lambda dtype, _: turning_model(dtype), value, first=row, turn=turn)

    def can_rewind(self, cache: Cache, length: int) -> bool:
        """Return whether a cache can be rewound to `length` tokens. To 0 tokens it always can."""
        if length in (0, cache.length):
            return True
        there = not cache.begin or (self.local is not None and length - cache.begin >= self.local.kept)
        return self.rewindable and there and 0 <= length <= cache.length

    async def rewound(self, cache: Cache, length: int) -> Cache:
        """Return the cache of the first `length` tokens.

        Raises:
            InvalidArgument: a recurrent state, or a cache whose rows were dropped.
        """
        if length == cache.length:
            return cache
        if length == 0:
            return self.cache(len(cache.mask))
        if not self.can_rewind(cache, length):
            raise InvalidArgument(f"this cache of {cache.length} tokens cannot be rewound to {length}")
        rows = length - cache.begin
        values = {name: await self._cut(value, 0, rows) for name, value in cache.values.items()}
        return Cache(values, length, cache.mask[:, :rows], cache.begin)

    async def _cut(self, value: OrtValue, first: int, end: int) -> OrtValue:
        """Return rows [first, end) of a cache."""
        first_row, end_row = (np.array([at], np.int64) for at in (first, end))
        return await self._moved("cut", _cutting_model, value, first=first_row, end=end_row)

    async def reordered(self, cache: Cache, rows: Sequence[int]) -> Cache:
        """Gather the cache's sequences `rows`, in this order; a sequence may occur several times."""
        place = np.array(rows, np.int64)
        values = {n: await self._moved("reorder", _gathering_model, x, rows=place) for n, x in cache.values.items()}
        return Cache(values, cache.length, cache.mask[list(rows)], cache.begin)

    async def _moved(self, kind: str, model: Callable[[DType, int], bytes], x: OrtValue, **more: Array) -> OrtValue:
        """What a model of this kind for the type and rank of `x` makes of it."""
        dtype, rank = next(t for t in _TYPES.values() if t.type_string == x.data_type()), len(x.shape())
        session = await self._helper((kind, dtype, rank), lambda: model(dtype, rank))
        feeds = {"x": x} | {name: OrtValue.ortvalue_from_numpy(array) for name, array in more.items()}
        (made,) = await session.run_with_ort_values_async(None, feeds)
        return made

    async def best_of_rows(self, logits: OrtValue) -> tuple[list[int], list[float]]:
        """Return the most probable id in each row of logits [1, rows, vocab], and its log-probability."""
        session = await self._helper("best_of_rows", lambda: _best_model(self.logits_dtype))
        ids, scores = await arrays_of(await session.run_with_ort_values_async(None, {"logits": logits}))
        return ids.reshape(-1).tolist(), scores.reshape(-1).tolist()

    async def sampled(self, options: SamplerOptions, feeds: Mapping[str, OrtValue | Array]) -> list[OrtValue]:
        """Run a sampler, which is created on first use, on the model's device; return its outputs, which stay there."""
        sampler = Internals(await self._helper(options, lambda: sampler_model(options)))
        names = sampler.output_names(None)
        made = await sampler.run_values(feeds, names, None, dict.fromkeys(names) if self.on_gpu else None)
        return [OrtValue(made[name]) for name in names]

    async def _helper(self, key: Hashable, model: Callable[[], bytes]) -> InferenceSession:
        """The session of a small model, on this one's device; made when it is first needed."""
        if key not in self._helpers:
            providers = [WEBGPU, CPU] if self.on_gpu else [CPU]
            self._helpers[key] = await InferenceSession.create(model(), providers=providers)
        return self._helpers[key]

    def release(self) -> None:
        """Release all sessions and their GPU memory."""
        for session in (self.session, *self._helpers.values()):
            session.release()


def _cutting_model(dtype: DType, _: int) -> bytes:
    writer = ModelWriter("rewind")
    writer.input("x", dtype, ("batch", "heads", "rows", "size"))
    writer.input("first", DType.INT64, (1,))
    writer.input("end", DType.INT64, (1,))
    writer.node("Slice", "x", "first", "end", writer.constant([2], np.int64), name="y")
    writer.output("y", dtype, ("batch", "heads", "kept", "size"))
    return writer.model()


def _gathering_model(dtype: DType, rank: int) -> bytes:
    writer, axes = ModelWriter("reorder"), [f"axis_{i}" for i in range(1, rank)]
    writer.input("x", dtype, ("batch", *axes))
    writer.input("rows", DType.INT64, ("kept",))
    writer.node("Gather", "x", "rows", axis=0, name="y")
    writer.output("y", dtype, ("kept", *axes))
    return writer.model()


def _best_model(logits_dtype: str) -> bytes:
    dtype = DType.FLOAT16 if logits_dtype == "float16" else DType.FLOAT
    writer = ModelWriter("best_of_rows")
    writer.input("logits", dtype, ("batch", "rows", "vocab"))
    x = "logits" if dtype is DType.FLOAT else writer.cast("logits", DType.FLOAT)
    ids = writer.node("ArgMax", x, axis=2, keepdims=1, name="ids")
    total = writer.node("ReduceLogSumExp", x, writer.constant([2], np.int64), keepdims=1)
    writer.node("Sub", writer.node("GatherElements", x, ids, axis=2), total, name="log_probability")
    writer.output("ids", DType.INT64, ("batch", "rows", 1))
    writer.output("log_probability", DType.FLOAT, ("batch", "rows", 1))
    return writer.model()
