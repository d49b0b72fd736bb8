"""Features that a place may lack, and what a page sees of that: the table of docs/browsers.md and its tests."""

from __future__ import annotations

import json
from dataclasses import dataclass

__all__ = ["LACKS", "PLACES", "Lack"]


@dataclass(frozen=True, slots=True)
class Lack:
    """Something that a browser, a place or a visitor's settings may not offer.

    Attributes:
        name: in the table. outcome: what a page sees, in a sentence or less.
        script: JavaScript that takes it away, in the page and in its workers.
        gone: an expression that is false there afterwards.
    """

    name: str
    outcome: str
    script: str = ""
    gone: str = "false"

    @property
    def init_script(self) -> str:
        """A script for the page, which also begins every worker."""
        return f"""(() => {{
            const script = {json.dumps(self.script)};
            (0, eval)(script);
            const Native = globalThis.Worker;
            if (!Native) return;
            const blob = (text) => URL.createObjectURL(new Blob([text], {{ type: 'text/javascript' }}));
            globalThis.Worker = class extends Native {{
                constructor(url, options) {{
                    const target = new URL(url, location.href).href;
                    super(blob(`import '${{blob(script)}}'; import '${{target}}';`), options);
                }}
            }};
        }})();"""


def _deleted(*names: str) -> str:
    """JavaScript that deletes globals, which are properties of the global object or of what it inherits from."""
    return "".join(
        f"for (let o = globalThis; o; o = Object.getPrototypeOf(o)) delete o[{json.dumps(name)}];\n" for name in names
    )


DENIED = """
const denied = () => { throw new DOMException('access is denied', 'SecurityError'); };
for (const name of ['caches', 'indexedDB', 'localStorage', 'sessionStorage']) {
    if (name in globalThis) Object.defineProperty(globalThis, name, { get: denied, configurable: true });
}
StorageManager.prototype.getDirectory = async () => denied();
StorageManager.prototype.persist = async () => denied();
"""

LACKS = (
    Lack(
        "cross-origin isolation (`SharedArrayBuffer`)",
        "works; nothing uses it",
        _deleted("SharedArrayBuffer"),
        "globalThis.SharedArrayBuffer",
    ),
    Lack(
        "WebAssembly stack switching (JSPI)",
        "works; Python code awaits the `..._async` calls",
        "delete WebAssembly.Suspending; delete WebAssembly.promising",
        "WebAssembly.Suspending",
    ),
    Lack("workers", "works; Python runs in the page's thread", _deleted("Worker"), "globalThis.Worker"),
    Lack(
        "Cache Storage",
        "works; plans and files are not kept",
        _deleted("caches", "CacheStorage"),
        "globalThis.caches",
    ),
    Lack(
        "the origin's file system (OPFS)",
        "works",
        "delete StorageManager.prototype.getDirectory",
        "navigator.storage.getDirectory",
    ),
    Lack("IndexedDB", "works", _deleted("indexedDB"), "globalThis.indexedDB"),
    Lack(
        "service workers",
        "works; not offline",
        "globalThis.Navigator && delete Navigator.prototype.serviceWorker",
        "navigator.serviceWorker",
    ),
    Lack(
        "all storage, as in a third party's frame where the browser blocks it",
        "works; nothing is kept",
        DENIED,
        "(() => { try { return caches; } catch { return false; } })()",
    ),
    Lack("storage that lasts, as in a private window", "works; what is kept goes with the window"),
)
"""`e2e/services/test_services.py` tries each."""

PLACES = (
    ("in a sandboxed frame, in a SharedWorker", "works; Python runs in the caller's thread"),
    ("in an extension's page, whose policy has `'wasm-unsafe-eval'`", "works"),
    ("in a service worker, an extension's too", "the error names the places where sessions can be made"),
)
"""`e2e/api/test_homes.py` and `e2e/services/test_extension.py` try each."""
