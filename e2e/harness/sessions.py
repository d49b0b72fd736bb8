"""Sessions in Pyodide for reliability tests: their prelude, feed and expected output."""

from __future__ import annotations

import os
import textwrap
from typing import Any

import numpy as np

from e2e.harness.python import BrowserPython

X = np.array([[1, -2, 3, -4]], np.float32)
Y = np.maximum(2 * X, 0)
SOAK = int(os.environ.get("PYRUNTIME_SOAK", "1"))

PRELUDE = """
import asyncio, warnings
import numpy as np
import pyruntime
from pyruntime import errors
from pyruntime.session import InferenceSession, RunOptions, SessionOptions
from pyruntime.session.environment import device as open_device
warnings.simplefilter("ignore")

def options(**entries):
    made = SessionOptions()
    for name, value in entries.items():
        made.add_session_config_entry(name.replace("__", "."), str(value))
    return made

def more_than(gpu, before):
    # bytes of new buffers only: those of earlier tests may be freed at any time
    return sum(nbytes for number, nbytes in gpu.ledger.live.items() if number not in before)
"""


def run(python: BrowserPython, source: str, **variables: Any) -> Any:
    """Run Python source after the prelude."""
    return python(PRELUDE + textwrap.dedent(source), **variables)
