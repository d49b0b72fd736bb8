"""Decoder subgraphs of text generation operators: their inputs, and their states between tokens.

Source: com.microsoft.BeamSearch and GreedySearch, as onnxruntime's CPU provider calls their subgraphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, Protocol

import numpy as np

from pyruntime.ir import Array, DeclaredTensor, DType, Graph, TensorType, ValueType, known
from pyruntime.ops.base import Op
from pyruntime.ops.control.body import Body

__all__ = ["Decoder", "EncoderDecoder", "PromptDecoder", "tensor_of"]

_ADVICE = "convert the model again, for the CPU: without shared buffers of past and present, in float32"


class Decoder(Protocol):
    """A decoder and its state.

    Attributes:
        vocab: size of the vocabulary.
    """

    vocab: int

    def first(self) -> Array:
        """Return the logits [rows, vocab] of the first token."""

    def step(self, tokens: Array, origins: Array | None, sequences: Array) -> Array:
        """Return the logits [rows, vocab] after `tokens` [rows].

        Args:
            origins: row of the previous step that each row continues; None: the same row.
            sequences: all tokens so far, [rows, length].
        """


def tensor_of(x: Any) -> ValueType:
    """Return the tensor type of an array, with the array as its value."""
    array = np.asarray(x)
    return known(TensorType(DType.from_numpy(array.dtype), array.shape), array)


class _Subgraph:
    """A subgraph with outputs logits and states."""

    def __init__(self, op: Op, role: str, graph: Graph, outer: dict[str, ValueType]) -> None:
        self._op, self._role, self.graph = op, role, graph
        self.inputs, self.outputs = len(graph.inputs), len(graph.outputs)
        self._body = Body(op, graph, outer)

    def fail(self, expected: str, got: object) -> NoReturn:
        """Raise InvalidGraph with the name of the subgraph."""
        self._op.fail(f"the subgraph '{self._role}' to have {expected}", f"{got}; {_ADVICE}")

    def refuse_layout(self, expected: str) -> NoReturn:
        """Raise InvalidGraph because of unexpected inputs and outputs."""
        names = (", ".join(info.name for info in side) for side in (self.graph.inputs, self.graph.outputs))
        self.fail(expected, "inputs {} and outputs {}".format(*names))

    def run(self, feeds: Sequence[ValueType]) -> list[Array]:
        """Run the subgraph; returns its outputs as arrays."""
        made = self._body(*feeds)
        for info, value in zip(self.graph.outputs, made, strict=True):
            if not isinstance(value, TensorType) or value.dtype is not DType.FLOAT:
                self.fail(f"a float32 tensor as output '{info.name}'", value)
        return [value.value() for value in made]

    def last(self, logits: Array, rows: int, vocab: int) -> Array:
        """Return the logits of the last position, float32 [rows, vocab], repeated for each beam."""
        if logits.ndim != 3 or logits.shape[2] != vocab or not logits.shape[0] or rows % logits.shape[0]:
            self.fail(f"scores [{rows}, length, {vocab}] as first output (vocab_size)", list(logits.shape))
        return np.repeat(logits[:, -1], rows // logits.shape[0], axis=0)

    def shape(self, index: int) -> tuple[Any, ...]:
        """Return the declared shape of input `index`; empty if there is none."""
        declared = self.graph.inputs[index].type
        return (declared.shape or ()) if isinstance(declared, DeclaredTensor) else ()

    def empty(self, index: int, rows: int, rank: int) -> Array:
        """Return a state without tokens for input `index`.

        Its shape is [rows, heads, 0, size] for rank 4, with a leading axis of size 2 for rank 5.
        """
        shape = self.shape(index)
        heads, size = (shape[-3], shape[-1]) if len(shape) == rank else (None, None)
        if not isinstance(heads, int) or not isinstance(size, int):
            name = self.graph.inputs[index].name
            self.fail(f"an input '{name}' of {rank} dimensions with known numbers of heads and components", list(shape))
        return np.zeros((*(2,) * (rank - 4), rows, heads, 0, size), np.float32)

    def vocab(self, attribute: int) -> int:
        """Return the size of the vocabulary: the attribute or, if absent, the declared size of the logits."""
        declared = self.graph.outputs[0].type
        shape = declared.shape if isinstance(declared, DeclaredTensor) else None
        size = attribute if attribute > 0 else shape[-1] if shape else None
        if not isinstance(size, int):
            self.fail("a first output whose declared shape ends with the size of the vocabulary", size)
        return size


class PromptDecoder:
    """A decoder-only model such as GPT-2: input_ids, position_ids, attention_mask, past_i -> logits, present_i.

    States are [2, rows, heads, length, size] and initially empty. The second graph, if present, processes the prompt.

    Attributes:
        vocab: size of the vocabulary.
    """

    def __init__(
        self,
        op: Op,
        graphs: tuple[Graph, Graph | None],
        outer: dict[str, ValueType],
        prompt: Array,
        mask: Array | None,
        pad: int,
        vocab: int,
    ) -> None:
        self._decoder = _Subgraph(op, "decoder", graphs[0], outer)
        self._init = self._decoder if graphs[1] is None else _Subgraph(op, "init_decoder", graphs[1], outer)
        for graph in (self._decoder, self._init):
            if graph.inputs != graph.outputs + 2 or graph.outputs < 2:
                graph.refuse_layout(
                    "inputs input_ids, position_ids, attention_mask, past_i for outputs logits, present_i"
                )
        self.vocab = self._decoder.vocab(vocab)
        self._prompt = prompt
        filled = prompt != pad
        self._mask = filled.astype(np.int32) if mask is None else mask
        self._positions = np.where(filled, np.cumsum(filled, axis=1) - 1, 0).astype(np.int32)
        self._next = filled.sum(axis=1, dtype=np.int32)[:, None]
        self._states: list[Array] = []

    def first(self) -> Array:
        self._states = [self._init.empty(i, len(self._prompt), 5) for i in range(3, self._init.inputs)]
        return self._run(self._init, self._prompt, self._positions)

    def step(self, tokens: Array, origins: Array | None, sequences: Array) -> Array:
        if origins is not None:
            self._states = [np.take(state, origins, axis=1) for state in self._states]
        self._mask = np.concatenate((self._mask, np.ones((len(tokens), 1), np.int32)), axis=1)
        logits = self._run(self._decoder, tokens[:, None].astype(np.int32), self._next)
        self._next = self._next + np.int32(1)
        return logits

    def _run(self, graph: _Subgraph, ids: Array, positions: Array) -> Array:
        logits, *self._states = graph.run([tensor_of(x) for x in (ids, positions, self._mask, *self._states)])
        return graph.last(logits, len(ids), self.vocab)


class EncoderDecoder:
    """An encoder-decoder model such as T5, BART or Whisper.

    encoder: features or input ids, a mask (not for Whisper), decoder_input_ids -> logits, encoder_hidden_states,
    decoder states after decoder_input_ids, and keys and values of cross-attention. Without decoder_input_ids, only the
    latter; the decoder then starts from empty states. decoder: input_ids, mask (not for Whisper), optionally
    encoder_hidden_states, its states, cross-attention keys and values -> logits, states. Unless the declared shape of
    input_ids is one token, they are the whole sequence. States are [rows, heads, length, size].

    Attributes:
        vocab: size of the vocabulary.
    """

    def __init__(
        self,
        op: Op,
        graphs: tuple[Graph, Graph],
        outer: dict[str, ValueType],
        source: Array,
        mask: Array | None,
        prompt: Array,
        beams: int,
        vocab: int,
    ) -> None:
        self._encoder = _Subgraph(op, "encoder", graphs[0], outer)
        self._decoder = _Subgraph(op, "decoder", graphs[1], outer)
        self.vocab = self._decoder.vocab(vocab)
        self._source, self._mask, self._prompt, self._beams = source, mask, prompt, beams
        lead, given = (0, "") if mask is None else (1, "encoder_attention_mask, ")
        layers, rest = divmod(self._decoder.outputs - 1, 2)
        self._hidden = self._decoder.inputs == 2 + lead + 4 * layers and len(self._decoder.shape(1 + lead)) == 3
        self._first_state, self._layers = 1 + lead + self._hidden, layers
        if rest or not layers or self._decoder.inputs != self._first_state + 4 * layers:
            self._decoder.refuse_layout(
                f"inputs input_ids, {given}encoder_hidden_states (optional), past_key_self_i, past_value_self_i, "
                "past_key_cross_i, past_value_cross_i for outputs logits, present_key_self_i, present_value_self_i"
            )
        self._whole = self._decoder.shape(0)[1:] != (1,)
        self._started = self._encoder.inputs == 2 + lead
        alone = lead == 1 and self._encoder.inputs == 1 + lead and not self._hidden
        if (not self._started and not alone) or self._encoder.outputs != (
            2 + 4 * layers if self._started else 2 * layers
        ):
            self._encoder.refuse_layout(
                f"inputs encoder_input_ids, {given}decoder_input_ids for outputs logits, encoder_hidden_states and "
                f"the states of {layers} layers"
            )
        self._fixed: list[ValueType] = []
        self._seen: list[ValueType] = []
        self._states: list[Array] = []

    def first(self) -> Array:
        rows = len(self._prompt) * self._beams
        mask = [] if self._mask is None else [self._mask]
        fed = [self._source, *mask, *([self._prompt] if self._started else [])]
        made = self._encoder.run([tensor_of(x) for x in fed])
        seen = [self._repeated(x) for x in made[-2 * self._layers :]]
        self._seen = [tensor_of(x) for x in seen]
        self._fixed = [tensor_of(self._repeated(x)) for x in (*mask, *([made[1]] if self._hidden else []))]
        if self._started:
            self._states = [self._repeated(x) for x in made[2 : 2 + 2 * self._layers]]
            return self._encoder.last(made[0], rows, self.vocab)
        own = range(self._first_state, self._first_state + 2 * self._layers)
        self._states = [self._decoder.empty(index, rows, 4) for index in own]
        return self._run(self._repeated(self._prompt))

    def step(self, tokens: Array, origins: Array | None, sequences: Array) -> Array:
        if origins is not None:
            self._states = [np.take(state, origins, axis=0) for state in self._states]
        return self._run(sequences if self._whole else tokens[:, None])

    def _repeated(self, x: Array) -> Array:
        return np.repeat(x, self._beams, axis=0)

    def _run(self, ids: Array) -> Array:
        states = [tensor_of(x) for x in self._states]
        fed = [tensor_of(ids.astype(np.int32)), *self._fixed, *states, *self._seen]
        logits, *self._states = self._decoder.run(fed)
        return self._decoder.last(logits, len(ids), self.vocab)
