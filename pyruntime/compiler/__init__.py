"""The compiler: typing, placement, schedule, memory, and the verified plan; graphs rewritten for other runtimes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyruntime.compiler.compile import Compiled, Compiler, Request
    from pyruntime.compiler.plan import Plan
    from pyruntime.compiler.rewriting import rewrite
    from pyruntime.compiler.typing import type_graph

__all__ = [
    "Compiled",
    "Compiler",
    "Plan",
    "Request",
    "rewrite",
    "type_graph",
]

_MODULES = {
    "Compiled": "compile",
    "Compiler": "compile",
    "Plan": "plan",
    "Request": "compile",
    "rewrite": "rewriting",
    "type_graph": "typing",
}


def __getattr__(name: str) -> Any:
    """Import the module of a name when it is first used: a page fetches and imports only what it needs."""
    if name not in _MODULES:
        raise AttributeError(f"module 'pyruntime.compiler' has no attribute '{name}'")
    value = globals()[name] = getattr(import_module(f"pyruntime.compiler.{_MODULES[name]}"), name)
    return value
