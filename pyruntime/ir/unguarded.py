"""`dataclass` for what is made by the thousand while a model is planned: frozen for type checkers alone.

A frozen dataclass of the standard library writes each of its fields by a call of `object.__setattr__`, which takes ten
times as long as an assignment; a model of 400 nodes makes 9,000 of them with 46,000 fields. Those decorated here are
the same (equality, hash, slots, `replace`), but nothing stops an assignment at run time. What users get (`TensorType`
in an operator of their own), and the modules of operators, which users derive from, have the standard library's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    import dataclasses

    def dataclass(cls=None, /, *, frozen=False, eq=True, **options):
        """`dataclasses.dataclass`, whose `frozen` only decides whether there is a hash."""

        def made(cls):
            hashed = frozen and eq and cls.__dict__.get("__hash__") is None
            return dataclasses.dataclass(cls, eq=eq, unsafe_hash=hashed, **options)

        return made if cls is None else made(cls)
