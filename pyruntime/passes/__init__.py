"""Graph passes: each a file with one function `run(graph, target) -> bool` that says whether it changed anything."""

from pyruntime.passes.pipeline import optimize

__all__ = ["optimize"]
