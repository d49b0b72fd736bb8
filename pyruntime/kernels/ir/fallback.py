"""Fallback kernels: entry points that compile fast, run until the pipelines of the optimized ones exist.

Drivers take 0.1 to 0.6 s to compile what makes a GPU fast: tiles in workgroup memory, loops that are written out,
shuffles. A kernel may have a second entry point, `fallback`, that computes the same on the same bindings and grid by
short loops: it compiles in a third of the time or less, and runs some ten times as long. A new session uses these while
the optimized kernels compile (`web/gpu/fallback.js`); results differ by rounding alone. A fallback kernel does not know
the size of a tile: a workgroup's part of the results follows from the grid. So kernels that differ in their tiles alone
have one fallback source, and one pipeline (PVT's 31 optimized kernels have 18).

The source has both, marked, and the parts of one are left out of the module of the other:

    // <optimized>  what only `main` uses, and `main`          // </optimized>
    // <fallback>   what only `fallback` uses, and `fallback`  // </fallback>

Models of more than `MOST_WORK` have none: a slow GPU would run them for longer than its driver compiles.
"""

from __future__ import annotations

from pyruntime.ir import upper
from pyruntime.target import Target

__all__ = ["DEFINES", "LITTLE_WORK", "MOST_WORK", "fallback_flag", "marked", "without_fallback"]

MOST_WORK = 50e9
"""Floating-point operations of a run that is begun with fallback kernels (ViT-B/16: 35e9, DINOv2-base: 46e9). GPUs of
0.4 TFLOP/s may take 3 s for as many, in several submits: Windows resets a GPU that takes 2 s for one."""

LITTLE_WORK = 0.25e9
"""Floating-point operations of a dispatch whose fallback kernel has less code and takes longer still. On an H200
products compile in 33 ms instead of 47 (any kernel takes 23), attention in 40 instead of 72."""

DEFINES = frozenset(("FALLBACK", "FALLBACK_ROWS", "LIGHT"))
"""What templates are told of fallback kernels alone: the optimized kernel is the same, and so is its name."""


def fallback_flag(target: Target, flops: int = 0, **little: int) -> dict[str, int]:
    """The define FALLBACK of templates that have such an entry point, where it is wanted: on GPUs, not on processors.

    Args:
        flops: of the dispatch; dynamic dimensions count as their upper bounds. little: more defines where they are few.
    """
    if not target.allows("fallback_kernels") or target.is_processor:
        return {}
    return {"FALLBACK": 1, **(little if upper(flops) <= LITTLE_WORK else {})}


def marked(optimized: str, fallback: str) -> str:
    """The two entry points of a kernel that is written here, as templates have them."""
    return f"// <optimized>\n{optimized}\n// </optimized>\n//\n// <fallback>\n{fallback}\n// </fallback>\n"


def without_fallback(source: str) -> str:
    """The source of a shader with `main` alone."""
    if "// <fallback>\n" not in source:
        return source
    before, *marked = source.split("// <fallback>\n")
    after = (part.partition("// </fallback>")[2].removeprefix("\n") for part in marked)
    return "".join((before, *after)).replace("// <optimized>\n", "").replace("// </optimized>\n", "")
