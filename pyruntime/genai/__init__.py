"""onnxruntime-genai's Python API: `import pyruntime.genai as og`.

    model = og.Model("folder")  # with genai_config.json
    tokenizer = og.Tokenizer(model)
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=200)
    generator = og.Generator(model, params)
    generator.append_tokens(tokenizer.encode("Once upon a time"))
    while not generator.is_done():
        generator.generate_next_token()

Calls are synchronous where Python can wait: under CPython on NumPy, in Pyodide by stack switching. Elsewhere
`await og.Model.create(folder)`, `await generator.append_tokens_async(ids)` and `async for tokens in generator`.
"""

from __future__ import annotations

from pyruntime.genai.config import Config
from pyruntime.genai.errors import GenerationError
from pyruntime.genai.generator import Generator
from pyruntime.genai.model import Model
from pyruntime.genai.params import GeneratorParams
from pyruntime.genai.tokenizer import Tensor, Tokenizer, TokenizerStream
from pyruntime.session.environment import WEBGPU, available_providers

__all__ = [
    "Config",
    "GenerationError",
    "Generator",
    "GeneratorParams",
    "Model",
    "Tensor",
    "Tokenizer",
    "TokenizerStream",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "is_cuda_available",
    "is_dml_available",
    "is_openvino_available",
    "is_qnn_available",
    "is_webgpu_available",
    "set_log_options",
]


def is_webgpu_available() -> bool:
    """Return whether this Python is in a browser."""
    return WEBGPU in available_providers()


def is_cuda_available() -> bool:
    """Return False: only WebGPU is supported."""
    return False


def is_dml_available() -> bool:
    """Return False: only WebGPU is supported."""
    return False


def is_openvino_available() -> bool:
    """Return False: only WebGPU is supported."""
    return False


def is_qnn_available() -> bool:
    """Return False: only WebGPU is supported."""
    return False


def set_log_options(**options: object) -> None:
    """Accepted for compatibility without effect; `pyruntime.set_default_logger_severity` sets the log level."""


def enable_telemetry_events() -> None:
    """Accepted for compatibility without effect: there is no telemetry."""


def disable_telemetry_events() -> None:
    """Accepted for compatibility without effect: there is no telemetry."""
