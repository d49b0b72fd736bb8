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
    """

    name: str
    outcome: str
    script: str = ""

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
        "cross-origin isolation (`SharedArrayBuffer`)", "works; nothing uses it", "delete globalThis.SharedArrayBuffer"
    ),
    Lack(
        "WebAssembly stack switching (JSPI)",
        "works; Python code awaits the `..._async` calls",
        "delete WebAssembly.Suspending; delete WebAssembly.promising",
    ),
    Lack("workers", "works; Python runs in the page's thread", "delete globalThis.Worker"),
    Lack(
        "Cache Storage",
        "works; plans and files are not kept",
        "delete globalThis.caches; delete globalThis.CacheStorage",
    ),
    Lack("the origin's file system (OPFS)", "works", "delete StorageManager.prototype.getDirectory"),
    Lack("IndexedDB", "works", "delete globalThis.indexedDB"),
    Lack("service workers", "works; not offline", "globalThis.Navigator && delete Navigator.prototype.serviceWorker"),
    Lack("all storage, as in a third party's frame where the browser blocks it", "works; nothing is kept", DENIED),
    Lack("storage that lasts, as in a private window", "works; what is kept goes with the window"),
)
"""`e2e/services/test_services.py` tries each."""

PLACES = (
    ("in a sandboxed frame, in a SharedWorker", "works; Python runs in the caller's thread"),
    ("in a service worker, an extension's too", "the error names the places where sessions can be made"),
)
"""`e2e/api/test_homes.py` tries each."""
