"""onnxruntime-genai's Tokenizer, TokenizerStream and Tensor."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyruntime.genai.config import Config
from pyruntime.genai.model import Model
from pyruntime.generate.tokenizer import Tokenizer as FolderTokenizer
from pyruntime.ir import Array

__all__ = ["Tensor", "Tokenizer", "TokenizerStream"]


class Tensor:
    """An array, with onnxruntime-genai's interface."""

    def __init__(self, arg0: Array, /) -> None:
        self._array = np.asarray(arg0)

    def as_numpy(self) -> Array:
        """Return the array."""
        return self._array

    def shape(self) -> list[int]:
        """Return the dimensions."""
        return list(self._array.shape)


class TokenizerStream:
    """Incremental decoder of tokens; never returns an incomplete character."""

    def __init__(self, arg0: Tokenizer, /) -> None:
        self._stream = arg0.inner.stream()

    def decode(self, arg0: int, /) -> str:
        """Return the text that this token adds; empty while a character is incomplete."""
        return self._stream.step(int(arg0))


class Tokenizer:
    """The tokenizer of a model, a configuration or a folder.

    Raises:
        NoSuchFile: there is no tokenizer.json.
    """

    def __init__(self, arg0: Model | Config | str, /) -> None:
        config = arg0.config if isinstance(arg0, Model) else arg0 if isinstance(arg0, Config) else Config(arg0)
        self.inner = FolderTokenizer(config.folder)
        self._config = config
        self._special = True

    def encode(self, arg0: str, /) -> Array:
        """Encode a text; return ids, int32."""
        return np.array(self.inner.encode(arg0, self._special), np.int32)

    def encode_batch(self, arg0: Sequence[str], /) -> Tensor:
        """Encode texts; return ids, int32 [batch, longest], padded on the right with the pad token."""
        rows = [self.encode(text) for text in arg0]
        made = np.full((len(rows), max(map(len, rows), default=0)), self.pad_token_id, np.int32)
        for row, ids in zip(made, rows, strict=True):
            row[: len(ids)] = ids
        return Tensor(made)

    def decode(self, arg0: Any, /) -> str:
        """Decode ids to a text."""
        return self.inner.decode([int(i) for i in np.asarray(arg0).reshape(-1)])

    def decode_batch(self, arg0: Tensor, /) -> list[str]:
        """Decode each row of a tensor to a text."""
        return [self.decode(row) for row in np.asarray(arg0.as_numpy() if isinstance(arg0, Tensor) else arg0)]

    def create_stream(self) -> TokenizerStream:
        """Create an incremental decoder."""
        return TokenizerStream(self)

    def to_token_id(self, arg0: str, /) -> int:
        """Return the id of a token; -1 where it is unknown."""
        found = self.inner.token_to_id(arg0)
        return -1 if found is None else found

    def apply_chat_template(
        self,
        messages: str,
        *,
        template_str: str | None = None,
        tools: str | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """Format a conversation, JSON of [{"role", "content"}], with `template_str` or the folder's chat template."""
        made = json.loads(messages)
        return self.inner.apply_chat_template(
            made, template_str, json.loads(tools) if tools else None, add_generation_prompt
        )

    def update_options(self, **kwargs: Any) -> None:
        """Set options; `add_special_tokens`: whether `encode` adds them to a text."""
        self._special = str(kwargs.get("add_special_tokens", self._special)).lower() in ("true", "1")

    @property
    def bos_token_id(self) -> int:
        """The configuration's bos_token_id; -1 where it has none."""
        return int(self._config.values["model"].get("bos_token_id", -1))

    @property
    def eos_token_ids(self) -> Array:
        """Ids of end tokens, int32."""
        return np.array(self._config.end_tokens, np.int32)

    @property
    def pad_token_id(self) -> int:
        """Id that fills shorter sequences."""
        return self._config.pad_token
