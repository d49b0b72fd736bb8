"""Execution providers: which of those that a caller names a session runs on, and with what options."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from pyruntime.errors import BadValue, BindingError, InvalidArgument
from pyruntime.session.environment import CPU, WEBGPU, available_providers, fits

__all__ = ["Chosen", "check_available", "chosen_providers"]

_NAMES = """
    ACL ArmNN Azure CANN CoreML CPU CUDA Dml Dnnl JS MIGraphX Nnapi NvTensorRTRTX OpenVINO QNN Rknpu ROCM SNPE Tensorrt
    Vitisai VitisAI VSINPU WebGpu WebNN Xnnpack
"""
_KNOWN = frozenset(f"{name}ExecutionProvider" for name in _NAMES.split())
"""Those of onnxruntime, on whatever platform."""

Chosen = dict[str, dict[str, str]]
"""Options by provider, the preferred one first."""


def chosen_providers(
    providers: Sequence[Any] | None,
    provider_options: Sequence[Mapping[str, Any]] | None = None,
    fallback: bool = True,
) -> Chosen:
    """Choose the available ones of the providers named (all, by default), the CPU's where none is.

    Warns of each that is named and not available.

    Args:
        fallback: go on where onnxruntime knows no provider of a name, or the arguments are malformed.

    Raises:
        BindingError (a RuntimeError): no provider has such a name, without `fallback`.
        BadValue (a ValueError): neither names nor (name, options), or other lengths, without `fallback`.
    """
    if not providers and not provider_options:
        return {name: {} for name in available_providers()}
    try:
        named = _named(providers, provider_options)
    except BadValue as error:
        if not fallback:
            raise
        warnings.warn(f"{error}; the model runs on {CPU}", UserWarning, stacklevel=2)
        return {CPU: {}}
    chosen: Chosen = {}
    for name, options in named:
        if name in chosen:
            warnings.warn(f"Duplicate provider '{name}' encountered, ignoring.", UserWarning, stacklevel=2)
        elif _is_available(name, options):
            chosen[name] = {str(key): str(value) for key, value in options.items()}
        else:
            warnings.warn(
                f"Specified provider '{name}' is not in available provider names. "
                f"Available providers: '{', '.join(available_providers())}'",
                UserWarning,
                stacklevel=2,
            )
            if name not in _KNOWN and not fallback:
                raise BindingError(f"Unknown Provider Type: {name}; available: {available_providers()}")
    return chosen or {CPU: {}}


def check_available(name: str, options: Mapping[str, str]) -> None:
    """Raises BindingError (a RuntimeError): no provider has this name. InvalidArgument: it is not available here."""
    if _is_available(name, options):
        return
    available = available_providers()
    if name not in _KNOWN:
        raise BindingError(f"Unknown Provider Type: {name}; available: {available}")
    raise InvalidArgument(
        f"Failed to add provider of type '{name}' to SessionOptions: it is not available here; available: {available}"
    )


def _is_available(name: str, options: Mapping[str, Any]) -> bool:
    """Return whether a session can run on a provider. No adapter is looked for where only the CPU is named."""
    return name == CPU or (name == WEBGPU and fits(options)) or name in available_providers()


def _named(
    providers: Sequence[Any] | None, provider_options: Sequence[Mapping[str, Any]] | None
) -> list[tuple[str, Mapping[str, Any]]]:
    """The names with their options. Raises BadValue."""
    if isinstance(providers, str) or not isinstance(providers, Sequence):
        raise BadValue(f"'providers' should be a sequence, got {providers!r}")
    if provider_options is None:
        return [_pair(provider) for provider in providers]
    if not isinstance(provider_options, Sequence):
        raise BadValue(f"'provider_options' should be a sequence, got {provider_options!r}")
    if len(providers) != len(provider_options):
        raise BadValue("'providers' and 'provider_options' should be the same length if both are given")
    if not all(isinstance(provider, str) for provider in providers):
        raise BadValue("Only string values for 'providers' are supported if 'provider_options' is given")
    if not all(isinstance(options, Mapping) for options in provider_options):
        raise BadValue("'provider_options' values must be dicts")
    return list(zip(providers, provider_options, strict=True))


def _pair(provider: Any) -> tuple[str, Mapping[str, Any]]:
    if isinstance(provider, str):
        return provider, {}
    match provider:
        case (str(name), Mapping() as options):
            return name, options
    raise BadValue(f"'providers' values must be either strings or (string, dict) tuples, got {provider!r}")
