"""Pairings: a function of two neighbouring results of a product, which it stores in their place.

Kernels that can do so have the hook `pair` (`kernels.ir.epilogue`) where they are rendered with PAIRED.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyruntime.kernels.ir.dispatch import Dispatch
from pyruntime.kernels.ir.epilogue import Epilogue, attach, scalar_fields

__all__ = ["Pairing", "attach_pairing"]


@dataclass(frozen=True, slots=True)
class Pairing:
    """A function of `in0` and `in1`, numbers of an even column and the odd one after it.

    Attributes:
        name: joins the kernel's.
        code: WGSL statements that end in `return`. helpers: functions they call.
        scalars: uniform numbers `code` names.
    """

    name: str
    code: str
    helpers: str = ""
    scalars: Mapping[str, float | int] = field(default_factory=dict)


def attach_pairing(dispatch: Dispatch, pairing: Pairing) -> Dispatch:
    """`dispatch`, of a kernel rendered with PAIRED, with `pairing` as the function.

    Raises:
        ValueError: the kernel has no such hook.
    """
    names = "".join(f"let {n} = params.{n};\n  " for n in pairing.scalars)
    fields, helpers = scalar_fields(pairing.scalars), f"{pairing.helpers}\n"
    code = f"{names}{pairing.code}"
    return attach(dispatch, Epilogue(pairing.name, code, {}, fields, pairing.scalars, helpers, "pair"))
