"""Graph passes: each is the `run` of one file, declared by `graph_pass`; `pipeline` has their order."""

from pyruntime.passes.pipeline import optimize

__all__ = ["optimize"]
