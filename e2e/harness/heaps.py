"""Memory of a page and its worker, as the browser's debugger sees it."""

from __future__ import annotations

import json
from typing import Any

from playwright.sync_api import Page

WASM = "WebAssembly memory of the worker"


class Heaps:
    """Measures after a forced collection: JavaScript objects of page and worker, WebAssembly memory of the worker."""

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
        """Bytes by what they are."""
        for _ in range(3):
            self._cdp.send("HeapProfiler.collectGarbage")
            self._ask("HeapProfiler.collectGarbage")
        page = self._cdp.send("Runtime.getHeapUsage")["usedSize"]
        worker = self._ask("Runtime.getHeapUsage")["usedSize"]
        return {"objects of the page": int(page), "objects of the worker": int(worker), WASM: self._wasm()}

    def detach(self) -> None:
        self._cdp.detach()

    def _wasm(self) -> int:
        prototype = self._ask("Runtime.evaluate", expression="WebAssembly.Memory.prototype")["result"]["objectId"]
        memories = self._ask("Runtime.queryObjects", prototypeObjectId=prototype)["objects"]["objectId"]
        source = "function () { return this.reduce((sum, { buffer }) => sum + buffer.byteLength, 0); }"
        found = self._ask("Runtime.callFunctionOn", objectId=memories, functionDeclaration=source, returnByValue=True)[
            "result"
        ]["value"]
        for made in (prototype, memories):
            self._ask("Runtime.releaseObject", objectId=made)
        assert found > 1 << 20, "Python's memory was not found"
        return int(found)

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
