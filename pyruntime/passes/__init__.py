"""Graph passes. Each is the `run` of one module, declared by `graph_pass`; `pipeline` defines their order."""

from pyruntime.passes.pipeline import optimize

__all__ = ["optimize"]
