"""Search options of a generation."""

from __future__ import annotations

from typing import Any

from pyruntime.errors import NotImplemented
from pyruntime.genai.errors import GenerationError
from pyruntime.genai.model import Model
from pyruntime.genai.tokenizer import Tokenizer
from pyruntime.generate.options import Constraint, GenerationOptions

__all__ = ["GeneratorParams"]

_DEFAULTS: dict[str, float | bool] = {
    "batch_size": 1.0,
    "chunk_size": 0.0,
    "diversity_penalty": 0.0,
    "do_sample": False,
    "early_stopping": True,
    "length_penalty": 1.0,
    "max_length": 0.0,
    "min_length": 0.0,
    "no_repeat_ngram_size": 0.0,
    "num_beams": 1.0,
    "num_return_sequences": 1.0,
    "past_present_share_buffer": False,
    "random_seed": -1.0,
    "repetition_penalty": 1.0,
    "temperature": 1.0,
    "top_k": 50.0,
    "top_p": 1.0,
}
_BEYOND = ("sinks", "window")
"""Options that only pyruntime has."""
_CHUNK = 512


class GeneratorParams:
    """Search options: the folder's, and those set later.

    Not in onnxruntime-genai: `window` and `sinks` of `pyruntime.generate.GenerationOptions`, for texts longer than the
    model's context_length; also in `search` of genai_config.json. max_length, context_length by default, still limits
    the text, so set it as well.
    """

    def __init__(self, arg0: Model, /) -> None:
        self.model = arg0
        own = arg0.config.values.get("search", {})
        self._search = {name: type(value)(own.get(name, value)) for name, value in _DEFAULTS.items()}
        if not self._search["max_length"]:
            self._search["max_length"] = float(arg0.config.values["model"].get("context_length", 0))
        self._beyond = {name: float(own[name]) for name in _BEYOND if name in own}
        self._guidance: Constraint | None = None

    def set_search_options(self, **kwargs: Any) -> None:
        """Set options by onnxruntime-genai's names.

        Raises:
            GenerationError (a RuntimeError): an unknown name, or a value that is neither a number nor a bool.
        """
        for name, value in kwargs.items():
            if name not in _DEFAULTS and name not in _BEYOND:
                raise GenerationError(f'Unknown value "{name}"; expected one of {sorted((*_DEFAULTS, *_BEYOND))}')
            if not isinstance(value, (int, float)):
                raise GenerationError(f"search option {name}: expected a number or a bool, got {value!r}")
            if name in _BEYOND:
                self._beyond[name] = float(value)
            else:
                self._search[name] = type(_DEFAULTS[name])(value)

    def get_search_options(self) -> dict[str, float | bool]:
        """Return all options of onnxruntime-genai, and those of pyruntime that were set."""
        return self._search | self._beyond

    def set_guidance(self, type: str, data: str, enable_ff_tokens: bool = False) -> None:
        """Constrain the output to a grammar: type 'json_schema' or 'regex'.

        Raises:
            NotImplemented: another type. InvalidArgument: an invalid schema or pattern.
        """
        from pyruntime.generate.constraints import TokenTable, constraint_of

        if type not in ("json_schema", "regex"):
            raise NotImplemented(f"guidance: expected 'json_schema' or 'regex', got {type!r}")
        table = TokenTable.of(Tokenizer(self.model).inner, self.model.config.end_tokens)
        self._guidance = constraint_of(type, data, table)

    def options(self) -> GenerationOptions:
        """Return these options for the decoding loop.

        Raises:
            GenerationError (a RuntimeError): no max_length, or a window larger than the model's context_length.
        """
        s, window, sinks = self._search, int(self._beyond.get("window", 0)), self._beyond.get("sinks")
        if not s["max_length"]:
            raise GenerationError("max_length is not set, and the folder gives no context_length")
        context = self.model.config.values["model"].get("context_length")
        if context and window > context:
            raise GenerationError(f"window {window} is more than the model's context_length {context}")
        return GenerationOptions(
            max_length=int(s["max_length"]),
            do_sample=bool(s["do_sample"]),
            temperature=float(s["temperature"]),
            top_k=int(s["top_k"]),
            top_p=float(s["top_p"]),
            repetition_penalty=float(s["repetition_penalty"]),
            no_repeat_ngram_size=int(s["no_repeat_ngram_size"]),
            seed=None if s["random_seed"] < 0 else int(s["random_seed"]),
            end_tokens=tuple(self.model.config.end_tokens),
            prefill_chunk=int(s["chunk_size"]) or _CHUNK,
            constraint=self._guidance,
            window=window,
            sinks=None if sinks is None else int(sinks),
            begin_token=self.model.config.begin_token,
        )

    @property
    def batch(self) -> int:
        """Value of batch_size: the number of prompts."""
        return int(self._search["batch_size"])

    @property
    def copies(self) -> int:
        """Value of num_return_sequences: sequences for each prompt."""
        return int(self._search["num_return_sequences"])

    @property
    def beams(self) -> int:
        """Value of num_beams; 1: no beam search."""
        return int(self._search["num_beams"])

    @property
    def min_length(self) -> int:
        """Minimum length, with the prompt, before an end token is allowed."""
        return int(self._search["min_length"])
