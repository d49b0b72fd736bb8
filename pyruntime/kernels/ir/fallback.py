"""Kernels that run until their pipelines are there.

Drivers take 0.1 to 0.6 s to compile what makes a GPU fast: tiles in workgroup memory, loops that are written out,
shuffles. A kernel may have a second entry point, `quick`, that does the same on the same bindings and the same grid, by
short loops: it compiles in a third of the time or less and takes some ten times as long to run. A session that is new
runs on these while the others compile (`web/gpu/fallback.js`); results differ by rounding alone. None knows the size of
a tile: a workgroup's part of the results follows from the grid. So kernels that differ in their tiles have one
text, and one pipeline (PVT's 31 whole kernels have 18).

The text has both, marked, and the parts of one are left out of the module of the other:

    // <whole>  what only `main` uses, and `main`  // </whole>
    // <quick>  what only `quick` uses, and `quick`  // </quick>

Models that are much work get none of them: a slow GPU would take longer to run these than its driver to compile.
"""

from __future__ import annotations

from pyruntime.ir import upper
from pyruntime.kernels.ir.dispatch import Target

__all__ = ["DEFINES", "LITTLE_WORK", "MOST_WORK", "marked", "quick_flag", "without_quick"]

MOST_WORK = 50e9
"""Floating-point operations of a run that is begun with quick kernels (ViT-B/16: 35e9, DINOv2-base: 46e9). GPUs of
0.4 TFLOP/s may take 3 s for as many, in several submits: Windows resets a GPU that takes 2 s for one."""

LITTLE_WORK = 0.25e9
"""Floating-point operations of a dispatch whose quick kernel has less code and takes longer still. Beside an H200
products compile in 33 ms instead of 47 (any kernel takes 23), attention in 40 instead of 72."""

DEFINES = frozenset(("QUICK", "QUICK_ROWS", "LIGHT"))
"""What templates are told of quick kernels alone: the whole kernel is the same, and so is its name."""


def quick_flag(target: Target, flops: int = 0, **little: int) -> dict[str, int]:
    """The define QUICK of templates that have such an entry point, where it is wanted: on GPUs, not on processors.

    Args:
        flops: of the dispatch, whatever open sizes are. little: more defines where these are few.
    """
    if not target.allows("quick_start") or target.is_processor:
        return {}
    return {"QUICK": 1, **(little if upper(flops) <= LITTLE_WORK else {})}


def marked(whole: str, quick: str) -> str:
    """The two entry points of a kernel that is written here, as templates have them."""
    return f"// <whole>\n{whole}\n// </whole>\n//\n// <quick>\n{quick}\n// </quick>\n"


def without_quick(source: str) -> str:
    """The text of a shader with `main` alone."""
    if "// <quick>\n" not in source:
        return source
    before, *marked = source.split("// <quick>\n")
    behind = (part.partition("// </quick>")[2].removeprefix("\n") for part in marked)
    return "".join((before, *behind)).replace("// <whole>\n", "").replace("// </whole>\n", "")
