"""Pairings: a function of two neighbouring results of a product, which it stores in their place.

Kernels that can do so declare, where they are rendered with PAIRED,

    fn pair(in0: f32, in1: f32) -> f32 { return in0; }

and store what it gives for columns 2j and 2j + 1 as column j.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pyruntime.kernels.dispatch import Dispatch
from pyruntime.kernels.params import Fields, extended, parse
from pyruntime.kernels.tail import nbytes

__all__ = ["Pairing", "attach_pairing"]

_HOOK = re.compile(r"^fn pair\(in0: f32, in1: f32\) -> f32 \{\s*return in0;\s*\}", re.M)


@dataclass(frozen=True, slots=True)
class Pairing:
    """A function of `in0` and `in1`, numbers of an even and the odd column behind it.

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
    kernel = dispatch.kernel
    names = "".join(f"let {n} = params.{n};\n  " for n in pairing.scalars)
    made = f"{pairing.helpers}\n\nfn pair(in0: f32, in1: f32) -> f32 {{\n  {names}{pairing.code}\n}}"
    own = nbytes(parse(kernel.body))
    body, count = _HOOK.subn(lambda _: made, kernel.body)
    if not count:
        raise ValueError(f"{kernel.name} takes no pairing")
    fields: Fields = tuple((n, "i32" if isinstance(v, int) else "f32") for n, v in pairing.scalars.items())
    params = dispatch.params
    if fields:
        added = "".join(f"\n  {n}: {kind}," for n, kind in fields)
        body = re.sub(r"(struct Params \{.*?)\n\}", lambda m: f"{m.group(1)}{added}\n}}", body, count=1, flags=re.S)
        params = extended(params, own, fields, pairing.scalars)
    return replace(dispatch, kernel=replace(kernel, name=f"{kernel.name}_{pairing.name}", body=body), params=params)
