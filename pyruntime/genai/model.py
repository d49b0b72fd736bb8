"""Models in onnxruntime-genai's folder format."""

from __future__ import annotations

from typing import Any

from pyruntime.errors import NotImplemented
from pyruntime.genai.config import Config
from pyruntime.generate.decoder import DecoderModel
from pyruntime.session import InferenceSession, SessionOptions
from pyruntime.session.environment import CPU, WEBGPU, wait_for
from pyruntime.session.precision import PRECISION

__all__ = ["Model"]

_PROVIDERS = {"cpu": CPU, "webgpu": WEBGPU}
_TASKS = ("encoder", "vision", "speech", "embedding")


class Model:
    """The decoder of a folder or configuration.

    Raises:
        InvalidArgument: `Config.kv_cache_bits` is set and the caches cannot be quantized. NoSuchFile: a file is
            missing.
        NotImplemented: a model with several parts, such as Whisper or a vision model, or with inputs that are windows
            of a fixed size (`sliding_window` of genai_config.json).
    """

    def __init__(self, arg0: Config | str, /) -> None:
        wait_for(self._open(arg0), "await og.Model.create(folder)")

    @classmethod
    async def create(cls, folder: Config | str) -> Model:
        """Awaitable constructor, which works everywhere."""
        made = cls.__new__(cls)
        await made._open(folder)
        return made

    async def _open(self, given: Config | str) -> None:
        self.config = config = given if isinstance(given, Config) else Config(given)
        parts = [part for part in _TASKS if config.values["model"].get(part, {}).get("filename")]
        if parts or config.decoder.get("pipeline"):
            raise NotImplemented(
                f"models with {parts or 'a pipeline'} are not supported; use InferenceSession for each file"
            )
        name = config.decoder["filename"]
        providers = None
        if config.providers is not None:
            providers = [_PROVIDERS[p.lower()] for p in config.providers if p.lower() in _PROVIDERS] or [CPU]
        source: Any = config.data.get(name, str(config.folder / name))
        options = SessionOptions()
        if config.kv_cache_bits:
            options.add_session_config_entry("pyruntime.kv_cache_bits", str(config.kv_cache_bits))
        options.add_session_config_entry(PRECISION, config.precision)
        session = await InferenceSession.create(source, options, providers)
        sliding, caches = config.sliding_window, self._caches(session)
        self.decoder = DecoderModel(session, self._names(), caches, self._sizes(), sliding.slack)
        fixed = [name for name in (*self.decoder.caches, self.decoder.ids_name) if self.decoder.is_fixed(name)]
        if sliding.slides and fixed:
            raise NotImplemented(
                f"genai_config.json: model.decoder.sliding_window.{sliding.slides} is not followed: the model takes a "
                f"prompt in windows of a fixed size ({fixed[0]}); such models are not supported"
            )

    def _names(self) -> dict[str, str]:
        inputs, outputs = self.config.decoder.get("inputs", {}), self.config.decoder.get("outputs", {})
        roles = {r: inputs[r] for r in ("input_ids", "attention_mask", "position_ids") if r in inputs}
        return roles | ({"logits": outputs["logits"]} if "logits" in outputs else {})

    def _caches(self, session: InferenceSession) -> dict[str, str]:
        """Return the caches that match the configuration's name patterns, for the layers that have them."""
        inputs, outputs = self.config.decoder.get("inputs", {}), self.config.decoder.get("outputs", {})
        known = {i.name for i in session.get_inputs()}
        found = {}
        for role, pattern in inputs.items():
            after = outputs.get(role.replace("past", "present", 1))
            if role.startswith("past") and isinstance(pattern, str) and "%d" in pattern and after:
                for i in range(int(self.config.decoder.get("num_hidden_layers", 0))):
                    if pattern.replace("%d", str(i)) in known:
                        found[pattern.replace("%d", str(i))] = after.replace("%d", str(i))
        return found

    def _sizes(self) -> dict[str, int]:
        decoder = self.config.decoder
        known = {"head_size": decoder.get("head_size"), "kv_heads": decoder.get("num_key_value_heads")}
        return {name: int(size) for name, size in known.items() if size}

    @property
    def type(self) -> str:
        """`model.type` of the configuration, such as 'llama'."""
        return str(self.config.values["model"].get("type", ""))

    @property
    def device_type(self) -> str:
        """Device of the model: 'WebGPU' or 'CPU'."""
        return "WebGPU" if self.decoder.on_gpu else "CPU"
