"""The session config entry `pyruntime.disable`: passes and kernel variants to do without."""

from __future__ import annotations

from pyruntime.errors import InvalidArgument
from pyruntime.kernels.variants import VARIANTS
from pyruntime.passes.pipeline import PASSES

__all__ = ["disabled_names"]


def disabled_names(entry: str) -> frozenset[str]:
    """Parse a comma-separated list of passes and kernel variants.

    Raises:
        InvalidArgument: a name that is neither a pass nor a kernel variant.
    """
    names = frozenset(filter(None, (name.strip() for name in entry.split(","))))
    known = {one.name for one in PASSES} | VARIANTS.keys()
    unknown = sorted(names - known)
    if unknown:
        raise InvalidArgument(
            f"pyruntime.disable: {', '.join(unknown)} is no pass and no kernel variant; there are "
            f"{', '.join(sorted(known))}"
        )
    return names
