"""A prepared model of ONNX's backend interface."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pyruntime.errors import BindingError
from pyruntime.session import InferenceSession, RunOptions

__all__ = ["OnnxRuntimeBackendRep", "set_allowed"]

_ALLOWED_RUN_OPTIONS = frozenset({"log_severity_level", "log_verbosity_level", "logid", "only_execute_path_to_fetches"})


class OnnxRuntimeBackendRep:
    """onnx.backend.base.BackendRep over a session."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session

    def run(self, inputs: Any, **kwargs: Any) -> list[Any]:
        """Run the model; return the outputs.

        Args:
            inputs: a list with a value for each input, or the value of the only input.
            kwargs: attributes of `RunOptions`; unknown names are ignored.

        Raises:
            BindingError (a RuntimeError): a single value for several inputs, or an attribute that is not permitted.
        """
        options = RunOptions()
        set_allowed(options, kwargs, _ALLOWED_RUN_OPTIONS)
        names = [value.name for value in self._session.get_inputs()]
        if not isinstance(inputs, list):
            if len(names) != 1:
                raise BindingError(f"Model expect {len(names)} inputs")
            inputs = [inputs]
        return self._session.run(None, dict(zip(names, inputs, strict=False)), options)


def set_allowed(options: Any, given: Mapping[str, Any], allowed: Collection[str]) -> None:
    """Set attributes of options. Raises BindingError: an attribute that is not allowed; unknown ones are ignored."""
    for name, value in given.items():
        if name in allowed:
            setattr(options, name, value)
        elif hasattr(options, name):
            raise BindingError(
                f"{type(options).__name__} attribute '{name}' is not permitted via the backend API. "
                f"Allowed attributes: {', '.join(sorted(allowed))}"
            )
