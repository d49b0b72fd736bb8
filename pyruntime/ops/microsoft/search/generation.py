"""Base class of BeamSearch, GreedySearch and similar operators: inputs and checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np

from pyruntime.errors import InvalidArgument, OutOfMemory
from pyruntime.ir import Array, DType, Graph, TensorType, ValueType
from pyruntime.ops.base import attributes
from pyruntime.ops.control.body import BodyOp
from pyruntime.ops.interpreter import current
from pyruntime.ops.microsoft.search.scoring import Scoring

__all__ = ["Generation", "encoder_mask"]


@attributes
class Generation(BodyOp):
    """Base of text generation operators.

    Class attributes:
        inputs: input names, separated by spaces.
    """

    inputs: ClassVar[str] = ""
    decoder: Graph
    eos_token_id: int
    pad_token_id: int
    decoder_start_token_id: int = -1
    encoder: Graph | None = None
    init_decoder: Graph | None = None
    model_type: int = 0
    no_repeat_ngram_size: int = 0
    vocab_size: int = -1

    def fed(self, inputs: Sequence[ValueType | None]) -> tuple[dict[str, TensorType], dict[str, ValueType]]:
        """Return the present inputs by name, and the captured outer values."""
        own, outer = self.split(inputs)
        found: dict[str, TensorType] = {}
        for name, value in zip(self.inputs.split(), own, strict=False):
            if value is not None:
                if not isinstance(value, TensorType):
                    self.refuse(name, "a tensor", value)
                found[name] = value
        return found, outer

    def refuse(self, name: str, expected: str, got: object, advice: str = "") -> NoReturn:
        """Raise InvalidArgument for an input. The planner adds the node's name."""
        raise InvalidArgument(
            f"{self.op_type}: expected {name} to be {expected}, got {got}; {advice or 'feed another value'}"
        )

    def whole(self, fed: dict[str, TensorType], name: str, default: int, least: int | None = None) -> int:
        """Return the value of an int32 scalar input; raises InvalidArgument below `least`."""
        number = int(self._one(fed, name, default, DType.INT32))
        if least is not None and number < least:
            self.refuse(name, f"{least} or more", number)
        return number

    def real(self, fed: dict[str, TensorType], name: str, default: float) -> float:
        """Return the value of a float scalar input."""
        return float(self._one(fed, name, default, DType.FLOAT))

    def _one(self, fed: dict[str, TensorType], name: str, default: float, dtype: DType) -> Any:
        value = fed.get(name)
        if value is None:
            return default
        if value.dtype is not dtype or value.size != 1:
            self.refuse(name, f"one number of type {dtype.onnx_name}", value)
        return value.value().reshape(())

    def matrix(self, fed: dict[str, TensorType], name: str, shape: Sequence[int | None]) -> Array | None:
        """Return the int32 input `name` of `shape` (None: any size), or None if it is absent."""
        value = fed.get(name)
        if value is None:
            return None
        fits = len(value.shape) == len(shape) and all(w in (None, d) for d, w in zip(value.shape, shape, strict=False))
        if value.dtype is not DType.INT32 or not fits:
            self.refuse(name, f"int32 {['?' if d is None else d for d in shape]}", value)
        array: Array = value.value()
        return array

    def needed(self, fed: dict[str, TensorType], name: str, shape: Sequence[int | None]) -> Array:
        """Like `matrix`, for a required input."""
        array = self.matrix(fed, name, shape)
        if array is None:
            self.refuse(name, "fed", "none")
        return array

    def length(self, fed: dict[str, TensorType], prompt: int, rows: int, vocab: int = 0) -> int:
        """Return max_length, which must exceed the length of the prompt.

        Args:
            rows: number of sequences.
            vocab: number of scores to return per token.

        Raises:
            OutOfMemory: the results would exceed `Limits.node_bytes`.
        """
        longest = self.whole(fed, "max_length", 0)
        if longest <= prompt:
            self.refuse("max_length", f"more than the {prompt} tokens of the prompt", longest)
        limit, needed = current().limits.node_bytes, 4 * rows * (longest + (longest - prompt) * vocab)
        if needed > limit:
            raise OutOfMemory(
                f"{self.op_type}: expected a max_length whose results take at most {limit} bytes (limit `node_bytes`, "
                f"see SessionOptions.limits), got {longest}, which takes {needed}"
            )
        return longest

    def scoring(self, fed: dict[str, TensorType], batch: int, vocab: int, **more: Any) -> Scoring:
        """Return the score modifiers set by the inputs that all these operators share."""
        penalty = self.real(fed, "repetition_penalty", 1.0)
        if penalty <= 0:
            self.refuse("repetition_penalty", "more than 0", penalty)
        return Scoring(
            end=self.eos_token_id,
            repetition_penalty=penalty,
            ngram=self.no_repeat_ngram_size,
            vocab_mask=self.matrix(fed, "vocab_mask", (vocab,)),
            prefix_mask=self.matrix(fed, "prefix_vocab_mask", (batch, vocab)),
            min_length=self.whole(fed, "min_length", 0),
            **more,
        )

    def prompt(self, fed: dict[str, TensorType], name: str = "input_ids") -> Array:
        """Return token ids, int32 [batch, length], both sizes positive."""
        ids = self.needed(fed, name, (None, None))
        if not ids.size:
            self.refuse(name, "a batch of one or more with one token or more", list(ids.shape))
        return ids

    def within(self, ids: Array, vocab: int, name: str = "input_ids") -> None:
        """Raise InvalidArgument for token ids outside the vocabulary."""
        if ids.min() < 0 or ids.max() >= vocab:
            self.refuse(name, f"tokens of 0 to {vocab - 1}", f"{ids.min()} to {ids.max()}")


def encoder_mask(ids: Array, pad: int) -> Array:
    """Return a mask of ids [batch, length], int32: 0 for leading pad tokens, else 1."""
    return (np.cumsum(ids != pad, axis=1) > 0).astype(np.int32)
