"""Progress bars in a terminal, by rich if it is installed."""

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
    """Receives the progress of a command."""

    def loading(self, event: Mapping[str, Any]) -> None:
        """Show an event of `InferenceSession.create`: its phase and, for a download, bytes."""

    def running(self, done: int, total: int) -> None:
        """Show the progress of a long run, as reported to `RunOptions.on_progress`."""


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
    """Show a progress bar on stderr during the block; none if stderr is not a terminal."""
    if not sys.stderr.isatty() or find_spec("rich") is None:
        yield _Silent()
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(file=sys.stderr), transient=True) as bar:
        yield _Bar(bar)
