"""Memory of a page and its worker, as reported by the browser's debugger."""

from __future__ import annotations

import json
from typing import Any

from playwright.sync_api import Page

AT_REST = "scheduler.postTask(() => {}, { priority: 'background' })"
"""Fulfilled when a thread has nothing else to do."""


class Heaps:
    """Measures memory after a forced collection: JavaScript of page and worker, WebAssembly of the worker."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._cdp = page.context.new_cdp_session(page)
        self._worker = ""
        self._answers: dict[int, Any] = {}
        self._number = 0
        self._cdp.on("Target.attachedToTarget", self._attached)
        self._cdp.on("Target.receivedMessageFromTarget", self._received)
        self._cdp.send("Target.setAutoAttach", {"autoAttach": True, "waitForDebuggerOnStart": False, "flatten": False})
        while not self._worker:
            page.wait_for_timeout(20)

    def measure(self) -> dict[str, int]:
        """Return bytes by kind: the minimum of several measurements, since collection is asynchronous."""
        measured = [self._measure() for _ in range(5)]
        return {name: min(each[name] for each in measured) for name in measured[0]}

    def _measure(self) -> dict[str, int]:
        for _ in range(2):
            self._cdp.send("HeapProfiler.collectGarbage")
            self._ask("HeapProfiler.collectGarbage")
            self._page.evaluate(f"() => {AT_REST}")  # what is told of collected objects is handled
            self._ask("Runtime.evaluate", expression=AT_REST, awaitPromise=True)
        held = {}
        for realm, usage in (
            ("page", self._cdp.send("Runtime.getHeapUsage")),
            ("worker", self._ask("Runtime.getHeapUsage")),
        ):
            held[f"objects of the {realm}"] = int(usage["usedSize"])
            held[f"array buffers of the {realm}"] = int(usage["backingStorageSize"])
        return held

    def detach(self) -> None:
        self._cdp.detach()

    def _attached(self, event: dict[str, Any]) -> None:
        if event["targetInfo"]["type"] == "worker":
            self._worker = event["sessionId"]

    def _received(self, event: dict[str, Any]) -> None:
        message = json.loads(event["message"])
        if "id" in message:
            self._answers[message["id"]] = message

    def _ask(self, method: str, **params: Any) -> Any:
        self._number += 1
        message = json.dumps({"id": self._number, "method": method, "params": params})
        self._cdp.send("Target.sendMessageToTarget", {"sessionId": self._worker, "message": message})
        while self._number not in self._answers:
            self._page.wait_for_timeout(5)
        answer = self._answers.pop(self._number)
        assert "error" not in answer, answer
        return answer["result"]
