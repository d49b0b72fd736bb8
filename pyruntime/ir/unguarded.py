"""`dataclass` and `replace` for what is made by the thousand while a model is planned: frozen for type checkers alone.

A frozen dataclass of the standard library writes each of its fields by a call of `object.__setattr__`, which takes ten
times as long as an assignment; a model of 400 nodes makes 9,000 of them with 46,000 fields. Those decorated here are
the same (equality, hash, slots, `replace`), but nothing stops an assignment at run time. What users get (`TensorType`
in an operator of their own), and the modules of operators, which users derive from, have the standard library's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["dataclass", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass, replace
else:
    import dataclasses
    from functools import lru_cache
    from operator import attrgetter

    @lru_cache(maxsize=1024)
    def _reader(cls):
        """The names of what makes an object, and what gives their values."""
        names = tuple(f.name for f in dataclasses.fields(cls) if f.init)
        # One name more: of two at least the values come as a tuple.
        return names, attrgetter(*names, names[0]) if names else lambda _: ()

    def replace(obj, /, **changes):
        """`dataclasses.replace`, in a third of the time."""
        cls = type(obj)
        names, read = _reader(cls)
        return cls(**{**dict(zip(names, read(obj), strict=False)), **changes})

    def dataclass(cls=None, /, *, frozen=False, eq=True, **options):
        """`dataclasses.dataclass`, whose `frozen` only decides whether there is a hash."""

        def made(cls):
            hashed = frozen and eq and cls.__dict__.get("__hash__") is None
            return dataclasses.dataclass(cls, eq=eq, unsafe_hash=hashed, **options)

        return made if cls is None else made(cls)
