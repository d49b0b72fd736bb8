"""Graph passes, one per module; `pipeline` orders them."""

from pyruntime.passes.pipeline import optimize

__all__ = ["optimize"]
