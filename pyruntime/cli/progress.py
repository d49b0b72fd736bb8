"""Progress of commands on a terminal, shown by rich where it is installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Protocol

__all__ = ["Progress", "showing_progress"]

_PHASES = {
    "model": "downloading",
    "parse": "reading",
    "adapter": "starting the GPU",
    "shaders": "planning, compiling kernels",
}


class Progress(Protocol):
    """What a command tells while it works."""

    def loading(self, event: Mapping[str, Any]) -> None:
        """Show an event of `InferenceSession.create`: its phase and, of a download, bytes."""

    def running(self, done: int, total: int) -> None:
        """Show how much of a long run is done, as `RunOptions.on_progress` tells it."""


class _Silent:
    def loading(self, event: Mapping[str, Any]) -> None:
        pass

    def running(self, done: int, total: int) -> None:
        pass


class _Bar:
    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._task = bar.add_task("", total=None)

    def loading(self, event: Mapping[str, Any]) -> None:
        done, total = event.get("loaded", 0), event.get("total")
        self._bar.update(self._task, description=_PHASES.get(event["phase"], ""), completed=done, total=total)

    def running(self, done: int, total: int) -> None:
        self._bar.update(self._task, description="running", completed=done, total=total)


@contextmanager
def showing_progress() -> Iterator[Progress]:
    """Show a bar on the error output, which goes when the command's work ends; none where that is no terminal."""
    if not sys.stderr.isatty() or find_spec("rich") is None:
        yield _Silent()
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(file=sys.stderr), transient=True) as bar:
        yield _Bar(bar)
