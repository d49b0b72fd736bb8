"""The runs that a decoder of text will be asked for, as far as its inputs tell: a prompt, then one token after another.

They are planned while the model's bytes arrive (a wrong prediction costs an unused plan), or ahead of time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyruntime.compiler.compile import Request
from pyruntime.errors import InvalidArgument
from pyruntime.ir import DeclaredTensor, DType, Graph, TensorType, ValueInfo
from pyruntime.session.run.cache_sizes import cache_sizes

__all__ = ["expected_logits", "expected_runs", "text_runs"]

PROMPT = 128
"""Tokens of the prompt: a plan for up to so many serves shorter ones."""

CHUNK = 256
"""Tokens of a prompt that web/text/decoder.js computes together at most."""

_CACHES = (DType.FLOAT, DType.FLOAT16, DType.BFLOAT16, DType.UINT8)
_INTEGERS = (DType.INT64, DType.INT32)


@dataclass(frozen=True, slots=True)
class _Decoder:
    """Inputs by what they are. `batch`, `tokens`: what the dimensions of the ids are called."""

    ids: str
    batch: str
    tokens: str
    caches: tuple[str, ...]
    inputs: Mapping[str, DeclaredTensor]

    def feeds(self, tokens: int, past: int) -> dict[str, TensorType]:
        """Return the types of a run of so many tokens after others."""
        made = {}
        for name, kind in self.inputs.items():
            dims = [
                d if isinstance(d, int) else self._size(name, axis, d, tokens, past)
                for axis, d in enumerate(kind.shape or ())
            ]
            made[name] = TensorType(kind.dtype, tuple(dims), None, name)
        return made

    def _size(self, name: str, axis: int, dim: str | None, tokens: int, past: int) -> int:
        if axis == 0 or dim == self.batch:
            return 1
        if name in self.caches:
            return past
        return tokens if dim == self.tokens else tokens + past


def expected_runs(graph: Graph, entry: str) -> list[Request]:
    """Predict the runs of a decoder with caches, a prompt and one token; none of other models.

    Args:
        entry: the session config entry `pyruntime.expects`, JSON: `staying`, names of the outputs that stay on the
            device, null for all; `text`: token ids are made on the device, and prompts want no logits; `names`: see
            `generate/facts.py`.

    Raises:
        InvalidArgument: another entry.
    """
    try:
        found = json.loads(entry)
        staying, text = found["staying"], bool(found.get("text", False))
        assert staying is None or (isinstance(staying, list) and all(isinstance(n, str) for n in staying))
    except (ValueError, TypeError, KeyError, AssertionError, AttributeError):
        raise InvalidArgument(
            f'pyruntime.expects: JSON like {{"staying": ["present.0.key"], "text": false}}, not {entry!r}'
        ) from None
    outputs = tuple(v.name for v in graph.outputs)
    stay = frozenset(outputs if staying is None else [n for n in outputs if n in staying])
    decoder = _decoder_of(graph)
    if decoder is None or len(stay) < len(decoder.caches):
        return []
    wanted = outputs
    if text:
        wanted = tuple(n for n in _cache_outputs(graph, decoder) if n in stay)
        if len(wanted) != len(decoder.caches):
            return []
    inside = frozenset((*decoder.caches, *((decoder.ids,) if text else ())))
    free = stay & frozenset(wanted)
    return [
        Request(decoder.feeds(PROMPT, 0), wanted, free, free, early=True),
        Request(decoder.feeds(1, PROMPT), outputs, stay | inside, stay, early=True),
    ]


def expected_logits(graph: Graph, runs: Sequence[Request]) -> dict[str, object] | None:
    """Return the logits that a run of one token brings to the host; None where it brings none, or several.

    Returns:
        `name`, `type` and `dims` of the output, `ids`: the type of the token ids. Types as JavaScript calls them.
    """
    if not runs:
        return None
    last = runs[-1]
    brought = [v for v in graph.outputs if v.name in last.outputs and v.name not in last.on_device]
    if len(brought) != 1 or not isinstance(kind := brought[0].type, DeclaredTensor):
        return None
    shape = kind.shape or ()
    tensors = [t for t in last.arrived.values() if isinstance(t, TensorType)]
    ids = [t.dtype for t in tensors if t.dtype in _INTEGERS and t.rank == 2]
    if len(shape) != 3 or not isinstance(shape[2], int) or kind.dtype not in (DType.FLOAT, DType.FLOAT16) or not ids:
        return None
    return {
        "name": brought[0].name,
        "type": kind.dtype.js_name,
        "dims": [1, 1, shape[2]],
        "ids": ids[0].js_name,
    }


def text_runs(graph: Graph) -> list[Request]:
    """Return the runs of a decoder with caches whose tokens are chosen on the host, as web/text/decoder.js makes them.

    Runs of each number of tokens up to `CHUNK`, without logits, at the beginning of a text and after others; and runs
    of one token with its logits. Caches stay on the device.

    Raises:
        InvalidArgument: another model.
    """
    decoder = _decoder_of(graph)
    outputs = {v.name: v.type for v in graph.outputs if isinstance(v.type, DeclaredTensor)}
    caches = _cache_outputs(graph, decoder) if decoder else ()
    scores = [n for n in outputs if n == "logits"] or [n for n in outputs if n not in caches]
    if decoder is None or len(caches) != len(decoder.caches) or len(scores) != 1:
        raise InvalidArgument(
            "--text: expected a decoder with token ids [batch, sequence], masks or positions, caches that grow, and "
            f"one output of logits; got the inputs {[v.name for v in graph.inputs]} and the outputs {list(outputs)}; "
            "compile other models with --shape"
        )
    free = frozenset(caches)
    shape = outputs[scores[0]].shape or ()
    stay = free if len(shape) == 3 and isinstance(shape[2], int) else free.union(scores)
    made = []
    for past in (CHUNK, 1, 0):
        inside = frozenset(decoder.caches) if past else frozenset()
        made.append(Request(decoder.feeds(1, past), (*caches, *scores), stay | inside, stay))
        for tokens in range(CHUNK, 0, -1) if past != 1 else ():
            made.append(Request(decoder.feeds(tokens, past), caches, free | inside, free))
    return made


def _cache_outputs(graph: Graph, decoder: _Decoder) -> tuple[str, ...]:
    """Return the names of the outputs that have the rank of the caches."""
    rank = len(decoder.inputs[decoder.caches[0]].shape or ())
    return tuple(name for name, kind in _declared(graph.outputs) if len(kind.shape or ()) == rank)


def _decoder_of(graph: Graph) -> _Decoder | None:
    """The inputs of a decoder with caches; None where there are others, or no caches."""
    kinds = dict(_declared(graph.inputs))
    for name, (heads, components) in cache_sizes(graph).items():
        if name in kinds and len(shape := kinds[name].shape or ()) == 4:
            sized = (shape[0], heads, shape[2], components)
            kinds[name] = DeclaredTensor(
                kinds[name].dtype, tuple(s if isinstance(d, str) else d for d, s in zip(shape, sized, strict=True))
            )
    caches = tuple(n for n, k in kinds.items() if k.dtype in _CACHES)
    ids = next((n for n, k in kinds.items() if k.dtype in _INTEGERS and len(k.shape or ()) == 2), None)
    if len(kinds) < len(graph.inputs) or not caches or ids is None:
        return None
    batch, tokens = kinds[ids].shape or ("", "")
    if not isinstance(batch, str) or not isinstance(tokens, str) or not batch or not tokens or batch == tokens:
        return None
    for name, kind in kinds.items():
        shape = kind.shape or ()
        rows = {d for axis, d in enumerate(shape) if axis and not isinstance(d, int) and d != batch}
        grows = len(rows) == 1 and len(shape) > 2
        if name in caches and not grows:
            return None
        if name not in caches and (kind.dtype not in _INTEGERS or len(shape) > 2):
            return None
    return _Decoder(ids, batch, tokens, caches, kinds)


def _declared(inputs: list[ValueInfo]) -> Iterator[tuple[str, DeclaredTensor]]:
    for value in inputs:
        if isinstance(value.type, DeclaredTensor) and value.type.shape is not None:
            yield value.name, value.type
