"""Kernels from the files in `shaders/`.

A template is WGSL plus five directives, each a comment on a line of its own:

    //#tensors a, b -> y      storage tensors read, then written; bound in this order: `kernels.wgsl.storage`.
                              One on both sides is written where the text left by conditions stores into it
    //#type T = a             `T` names the compute type of tensor `a` in the code below
    //#if NAME / //#if !NAME  lines up to //#elif NAME, //#else or //#endif are kept where the define is true (false)
    //#unroll [NAME]          the loop below is written out (where the define is true): `kernels.wgsl.unroll`, done
                              last, when a kernel is rendered: all that looks at kernels has short texts to read
    //#include NAME          the text of `shaders/parts/NAME.wgsl`, directives and all: what several templates or parts
                              share. `//#include NAME x=q` puts `q` in the place of its `$x`

`const TILE: u32 = 16u;` gives a number its default; `template(..., TILE=32)` replaces it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from functools import lru_cache
from itertools import chain
from operator import index
from typing import SupportsIndex

from pyruntime.ir import DType
from pyruntime.kernels.ir.fallback import DEFINES
from pyruntime.kernels.ir.kernel import Binding, Kernel
from pyruntime.kernels.wgsl.library import bare, read
from pyruntime.kernels.wgsl.module import Module
from pyruntime.kernels.wgsl.params import pack

__all__ = ["params_of", "part", "template", "tensors_of"]

_INCLUDE = re.compile(r'^//#include\s+(\w+)((?:[ ]+\w+=(?:"[^"]*"|\S+))*)[ ]*$', re.M)
_TENSORS = re.compile(r"^//#tensors\s+(.*?)\s*->\s*(.*?)\s*$", re.M)
_TYPE = re.compile(r"^//#type\s+(\w+)\s*=\s*(\w+)\s*$", re.M)
_UNROLL = re.compile(r"^([ ]*//#unroll)[ ]+(\w+)[ ]*\n", re.M)
_CONDITION = re.compile(r"^\s*//#(if|elif|else|endif)\b\s*(!?)(\w*)")
_CONST = re.compile(r"^const\s+(\w+)\s*:\s*(u32|i32|f32|bool)\s*=\s*([^;]+);", re.M)


@lru_cache(maxsize=1024)
def _source(name: str) -> str:
    def included(match: re.Match[str]) -> str:
        given = dict(word.split("=", 1) for word in shlex.split(match[2]))
        return re.sub(r"\$(\w+)", lambda name: given[name[1]], _source(match[1]).rstrip())

    return _INCLUDE.sub(included, bare(read(name)))


@lru_cache(maxsize=1024)
def tensors_of(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the tensors `shaders/<name>.wgsl` reads and writes."""
    found = _TENSORS.search(_source(name))
    if not found:
        raise ValueError(f"shaders/{name}.wgsl: no //#tensors line")
    reads, writes = (tuple(re.findall(r"\w+", part)) for part in found.groups())
    return reads, writes


@lru_cache(maxsize=1024)
def _blocks(name: str) -> tuple[tuple[tuple[tuple[str, bool], ...], str], ...]:
    """The lines between conditions, with the defines that they are kept for and whether these must be true."""
    made: list[tuple[tuple[tuple[str, bool], ...], str]] = []
    stack: list[list[tuple[str, bool]]] = []
    lines: list[str] = []

    def close() -> None:
        if lines:
            made.append((tuple(chain.from_iterable(stack)), "\n".join(lines)))
            lines.clear()

    for line in _source(name).splitlines():
        if line.startswith("//#tensors"):
            continue
        found = _CONDITION.match(line)
        if found is None:
            lines.append(line)
            continue
        close()
        word, no, flag = found.groups()
        kept = [] if word == "if" else stack.pop()
        if word in ("elif", "else"):
            last, wanted = kept.pop()
            kept = [*kept, (last, not wanted)]
        if flag:
            kept = [*kept, (flag, not no)]
        if word != "endif":
            stack.append(kept)
    close()
    if stack:
        raise ValueError(f"shaders/{name}.wgsl: //#if without //#endif")
    return tuple(made)


def _conditionals(name: str, defines: Mapping[str, float | int | bool]) -> str:
    kept = (text for conditions, text in _blocks(name) if all(bool(defines.get(f, 0)) == on for f, on in conditions))
    return "\n".join(kept)


@lru_cache(maxsize=1024)
def _defines(name: str) -> frozenset[str]:
    """Return the names that a template takes: its conditions and constants."""
    source = _source(name)
    flags = re.findall(r"^\s*//#(?:(?:el)?if\s+!?|unroll\s+)(\w+)", source, re.M)
    return frozenset((*flags, *(match[1] for match in _CONST.finditer(source))))


def _literal(kind: str, value: float | int | bool) -> str:
    """A number as a WGSL literal of a type.

    Raises:
        ValueError: the type does not have it.
    """
    if kind == "bool":
        return "true" if value else "false"
    if kind == "f32":
        return f"{float(value)!r}f"
    least, most = (0, 2**32 - 1) if kind == "u32" else (-(2**31), 2**31 - 1)
    if not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{value!r} is no {kind}")
    return f"{int(value)}{'u' if kind == 'u32' else 'i'}"


def _told(name: str, values: Mapping[str, float | int | bool]) -> str:
    """A file's text with its conditions decided and its constants replaced.

    Raises:
        ValueError: a value for what the file does not have, or of another type.
    """
    if unknown := values.keys() - _defines(name):
        raise ValueError(f"shaders/{name}.wgsl has no constant or condition {', '.join(sorted(unknown))}")

    def replace(match: re.Match[str]) -> str:
        key, kind, default = match.groups()
        if key not in values:
            return f"const {key}: {kind} = {default};"
        try:
            return f"const {key}: {kind} = {_literal(kind, values[key])};"
        except ValueError as error:
            raise ValueError(f"shaders/{name}.wgsl, constant {key}: {error}") from None

    return _CONST.sub(replace, _conditionals(name, values))


def part(name: str, **defines: float | int | bool) -> str:
    """The text of `shaders/parts/<name>.wgsl`, for kernels that are generated."""
    return _told(name, defines)


@lru_cache(maxsize=1024)
def _expand(name: str, dtypes: tuple[DType, ...], defines: tuple[tuple[str, float | int | bool], ...]) -> Kernel:
    reads, writes = tensors_of(name)
    values = dict(defines)
    text = _told(name, values)
    text = _UNROLL.sub(lambda mark: f"{mark[1]}\n" if values.get(mark[2]) else "", text)
    types = dict(zip((*reads, *writes), dtypes, strict=True))
    text = _TYPE.sub(lambda m: f"alias {m.group(1)} = {types[m.group(2)].compute};", text)
    module = Module.of(text.strip())
    stored = {n for n, kinds in module.accessors.items() if any(kind.startswith("store") for kind in kinds)}
    written = {n for n in writes if n not in reads or n in stored}
    bound = tuple(Binding(n, types[n], n in written) for n in types if n in module.names or n in module.accessors)
    suffix = "".join(f"_{k.lower()}{int(v)}" for k, v in defines if k not in DEFINES)
    return Kernel(name + suffix, module.text, bound)


def template(name: str, dtypes: Mapping[str, DType] | DType = DType.FLOAT, **defines: float | SupportsIndex) -> Kernel:
    """The kernel of `shaders/<name>.wgsl`.

    Args:
        dtypes: one type for every tensor, or a type by tensor name (the others float32).
        defines: values of the file's `const` declarations and `//#if` conditions. A dynamic dimension is the number
            seen, and the plan holds for it alone.

    Raises:
        ValueError: a define the file does not have, or one that is not of its constant's type.
    """
    reads, writes = tensors_of(name)
    names = (*reads, *writes)
    given = dict.fromkeys(names, dtypes) if isinstance(dtypes, DType) else dtypes
    numbers = [(n, v if isinstance(v, float) else index(v)) for n, v in sorted(defines.items())]
    return _expand(name, tuple(given.get(n, DType.FLOAT) for n in names), tuple(numbers))


def params_of(kernel: Kernel, **values: float | int | list[int] | tuple[int, ...]) -> bytes:
    """The bytes of the kernel's `struct Params`.

    Raises:
        KeyError, ValueError: fields do not match.
    """
    return pack(kernel.module.params, values)
