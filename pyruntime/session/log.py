"""Log levels as onnxruntime counts them, on Python's logger 'pyruntime'."""

from __future__ import annotations

import logging

from pyruntime.errors import BindingError

__all__ = ["logger", "set_default_logger_severity", "set_default_logger_verbosity"]

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
