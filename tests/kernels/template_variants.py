"""Variants of the templates in `shaders/` that tests render, listed in template_variants.txt.

A line is a template and one variant of it: `matmul_tiled: TRANS_A=1,ROWS=8 a=float16`, values of constants and
conditions, then types of tensors (float32 where none is given).
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from pyruntime.ir import DType

__all__ = ["variants_of"]


@cache
def _listed() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in Path(__file__).with_suffix(".txt").read_text("utf-8").splitlines():
        name, _, variant = line.partition(":")
        found.setdefault(name, []).append(variant)
    return found


def variants_of(name: str) -> list[tuple[dict[str, int], dict[str, DType]]]:
    """Defines and tensor types of each variant of a template; one with nothing changed where none is listed."""
    made: list[tuple[dict[str, int], dict[str, DType]]] = []
    for variant in _listed().get(name, [""]):
        given = re.findall(r"(\w+)=(\w+)", variant)
        defines = {key: int(value) for key, value in given if value.isdigit()}
        types = {key: DType.from_name(value) for key, value in given if not value.isdigit()}
        made.append((defines, types))
    return made
