"""genai_config.json, the configuration of a model folder. Source: onnxruntime-genai, configuration reference."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyruntime.genai.errors import GenerationError
from pyruntime.generate.decoder import SLACK

__all__ = ["Config", "SlidingWindow"]


@dataclass(frozen=True)
class SlidingWindow:
    """The windows of a model, from `model.decoder.sliding_window`.

    Attributes:
        slides: field that makes inputs or caches windows of a fixed size; empty if there is none.
        slack: rows beyond the window in caches that hold a window.
    """

    slides: str
    slack: int


class Config:
    """The configuration of a folder, which can be changed before a model is created from it.

    Attributes:
        kv_cache_bits: 8 or 4: floating-point caches are quantized to this width (docs/generate.md); 0: they are not.
            Not in onnxruntime-genai.
        precision: 'float16': a float32 model computes in float16 (docs/memory.md); '': it uses its own types. Not in
            onnxruntime-genai.

    Raises:
        GenerationError (a RuntimeError): there is no genai_config.json, or it cannot be read.
    """

    def __init__(self, arg0: str, /) -> None:
        self.folder = Path(arg0)
        path = self.folder / "genai_config.json"
        if not path.is_file():
            raise GenerationError(f"{path} cannot be opened: expected a folder with genai_config.json")
        try:
            self.values: dict[str, Any] = json.loads(path.read_text("utf-8"))
            self.values["model"]["decoder"]["filename"]
        except (ValueError, KeyError, TypeError) as error:
            raise GenerationError(f"{path}: {error!r}; expected JSON with model.decoder.filename") from None
        self.providers: list[str] | None = None
        self.kv_cache_bits = 0
        self.precision = ""
        self.data: dict[str, Any] = {}

    def clear_providers(self) -> None:
        """Run on the CPU unless providers are appended."""
        self.providers = []

    def append_provider(self, arg0: str, /) -> None:
        """Run on 'cpu' or 'webgpu'. Other names are ignored if one of these remains."""
        self.providers = [*(self.providers or []), arg0]

    def set_provider_option(self, arg0: str, arg1: str, arg2: str, /) -> None:
        """Accepted for compatibility without effect: providers have no options."""

    def overlay(self, arg0: str, /) -> None:
        """Merge JSON with the structure of genai_config.json into the configuration."""
        _merge(self.values, json.loads(arg0))

    def add_model_data(self, arg0: str, arg1: Any, /) -> None:
        """Use these bytes in place of the file of this name."""
        self.data[arg0] = bytes(arg1)

    def remove_model_data(self, arg0: str, /) -> None:
        """Remove the bytes of a file that were added by `add_model_data`."""
        self.data.pop(arg0, None)

    @property
    def decoder(self) -> dict[str, Any]:
        """`model.decoder`."""
        found: dict[str, Any] = self.values["model"]["decoder"]
        return found

    @property
    def sliding_window(self) -> SlidingWindow:
        """The parsed `model.decoder.sliding_window`; missing fields have onnxruntime-genai's defaults.

        The caches follow the graph, so `window_size` and `layers` are ignored in favor of GroupQueryAttention's
        local_window_size. `alignment` and `pad_value` only describe padding of sliding inputs or caches.
        """
        given: dict[str, Any] | None = self.decoder.get("sliding_window")
        if given is None:
            return SlidingWindow("", SLACK)
        slides = next((n for n in ("slide_inputs", "slide_key_value_cache") if given.get(n, True)), "")
        return SlidingWindow(slides, int(given.get("cache_slack", 0)) or SLACK)

    @property
    def end_tokens(self) -> list[int]:
        """`model.eos_token_id` as a list."""
        return _several(self.values["model"].get("eos_token_id", []))

    @property
    def begin_token(self) -> int | None:
        """`model.bos_token_id`; None where the file has none."""
        return next(iter(_several(self.values["model"].get("bos_token_id"))), None)

    @property
    def pad_token(self) -> int:
        """`model.pad_token_id`, else the first end token, else 0."""
        found = _several(self.values["model"].get("pad_token_id", []))
        return next(iter([*found, *self.end_tokens, 0]))


def _several(value: Any) -> list[int]:
    return [int(v) for v in value] if isinstance(value, list) else [] if value is None else [int(value)]


def _merge(into: dict[str, Any], other: dict[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value
