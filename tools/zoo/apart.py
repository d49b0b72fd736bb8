"""Work in a separate process, so that a crash or a time-out does not affect the caller."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["in_process"]

Told = Mapping[str, Any]
"""What such a process says, as JSON has it."""


def in_process(
    work: Callable[[], Told], failed: Callable[[BaseException], Told], ended: Callable[[str], Told], seconds: int
) -> dict[str, Any]:
    """Return the result of `work`, of `failed` for its exception, or of `ended` if there is no result."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        signal.alarm(seconds)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            told = work()
        except BaseException as error:  # noqa: BLE001  # boundary: a process; reported to its parent
            told = failed(error)
        with os.fdopen(write, "wb") as pipe:
            pipe.write(json.dumps(told).encode())
        os._exit(0)  # private: exits without cleanup
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    return dict(json.loads(data) if data else ended(f"with status {status} (more than {seconds} s?)"))
