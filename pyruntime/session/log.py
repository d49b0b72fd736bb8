"""Log levels as onnxruntime counts them, on Python's logger 'pyruntime'."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pyruntime.errors import BindingError

__all__ = ["logger", "set_default_logger_callback", "set_default_logger_severity", "set_default_logger_verbosity"]

logger = logging.getLogger("pyruntime")

_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)


def set_default_logger_severity(severity: int) -> None:
    """Least severe messages that are logged: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal.

    Raises:
        BindingError (a RuntimeError): another number.
    """
    if severity not in range(len(_LEVELS)):
        raise BindingError(f"Invalid logging severity {severity}. 0:Verbose, 1:Info, 2:Warning, 3:Error, 4:Fatal")
    logger.setLevel(_LEVELS[severity])


def set_default_logger_verbosity(verbosity: int) -> None:
    """Accepted; there is one level of verbose messages."""


class _Callback(logging.Handler):
    """Hands messages to a function, by onnxruntime's numbers of severity."""

    def __init__(self, callback: Callable[[int, str, str, str, str], None]) -> None:
        super().__init__()
        self._callback = callback

    def emit(self, record: logging.LogRecord) -> None:
        severity = max((n for n, level in enumerate(_LEVELS) if level <= record.levelno), default=0)
        self._callback(severity, record.name, "", f"{record.pathname}:{record.lineno}", record.getMessage())


def set_default_logger_callback(callback: Callable[[int, str, str, str, str], None] | None, severity: int = 2) -> None:
    """Have messages of this severity or more given to `callback(severity, category, logid, code_location, message)`.

    Args:
        callback: None: to Python's handlers again.

    Raises:
        BindingError (a RuntimeError): another severity than `set_default_logger_severity` takes.
    """
    if severity not in range(len(_LEVELS)):
        raise BindingError(f"Invalid logging severity {severity}. 0:Verbose, 1:Info, 2:Warning, 3:Error, 4:Fatal")
    for handler in [h for h in logger.handlers if isinstance(h, _Callback)]:
        logger.removeHandler(handler)
    logger.propagate = callback is None
    if callback is not None:
        logger.addHandler(_Callback(callback))
        set_default_logger_severity(severity)
