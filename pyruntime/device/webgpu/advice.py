"""Advice on how to enable WebGPU in the user's browser.

Sources: the release notes of Chrome, Firefox and Safari; `chrome://gpu`, Firefox's `about:config`.
"""

from __future__ import annotations

__all__ = ["no_adapter", "no_webgpu"]

_INSTEAD = ", or use the CPUExecutionProvider"

_FIREFOX_WORKER = " and dom.webgpu.workers.enabled"


def no_webgpu(user_agent: str, secure: bool, worker: bool) -> str:
    """Return the error text for a missing `navigator.gpu`.

    Args:
        user_agent: `navigator.userAgent`.
        secure: `isSecureContext`; browsers offer WebGPU only to secure contexts.
        worker: this is a worker, for which Firefox has a separate switch.
    """
    said = "this browser has no WebGPU (navigator.gpu is missing): "
    if not secure:
        return f"{said}the page is not secure, so open it by https or on localhost{_INSTEAD}"
    match _browser(user_agent):
        case "Firefox":
            also = _FIREFOX_WORKER if worker else ""
            way = f"in about:config set dom.webgpu.enabled{also} to true (Firefox 141 or newer)"
        case "Safari":
            way = "update to Safari 26 or newer, or switch WebGPU on in its Feature Flags"
        case "Chrome" | "Edge" as name:
            scheme = name.lower()
            way = f"update to {name} 113 or newer, or switch {scheme}://flags/#enable-unsafe-webgpu on"
        case _:
            way = "use a current Chrome, Edge, Safari or Firefox"
    return said + way + _INSTEAD


def no_adapter(user_agent: str) -> str:
    """Return the error text for a browser with WebGPU but without an adapter."""
    said = "WebGPU found no adapter: "
    match _browser(user_agent):
        case "Firefox":
            way = (
                "see about:support under 'WebGPU'; where the GPU is blocked, set gfx.webgpu.ignore-blocklist in "
                "about:config to true, and update the graphics driver"
            )
        case "Safari":
            way = "see whether Safari's Feature Flags have WebGPU on"
        case "Chrome" | "Edge" as name:
            scheme = name.lower()
            way = (
                f"see {scheme}://gpu; switch on hardware acceleration in the settings and, on Linux, "
                f"{scheme}://flags/#enable-unsafe-webgpu, and update the graphics driver"
            )
        case _:
            way = "see what the browser's settings say about the GPU"
    return said + way + _INSTEAD


def _browser(user_agent: str) -> str:
    """Return `Firefox`, `Edge`, `Chrome` (any Chromium), `Safari`, or '' for others, such as WebKitGTK."""
    for token, name in (("Firefox/", "Firefox"), ("Edg/", "Edge"), ("Chrome/", "Chrome"), ("Safari/", "Safari")):
        if token in user_agent:
            return "" if name == "Safari" and "Linux" in user_agent else name
    return ""
