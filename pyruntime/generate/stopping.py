"""Stop strings in streamed text."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["StopStrings"]


class StopStrings:
    """Passes text up to the first stop string; holds back text that may be the start of one."""

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = [s for s in stop if s]
        self._held = ""
        self.met = False

    def feed(self, text: str) -> str:
        """Add a text; return what is certain to precede a stop string."""
        if self.met:
            return ""
        self._held += text
        found = [at for at in map(self._held.find, self._stop) if at >= 0]
        if found:
            self.met, shown, self._held = True, self._held[: min(found)], ""
            return shown
        keep = max((n for s in self._stop for n in range(1, len(s)) if self._held.endswith(s[:n])), default=0)
        shown, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return shown

    def rest(self) -> str:
        """Return the text that is still held back, at the end of the stream."""
        shown, self._held = self._held, ""
        return shown
