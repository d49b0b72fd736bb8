"""docs/api.md from the docstrings of `pyruntime` and the declarations of web/: `python -m tools.api_docs [--check]`."""

from __future__ import annotations

import enum
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyruntime

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "api.md"

# Every public name is in one group; what is in none belongs to the last.
GROUPS: dict[str, tuple[str, ...]] = {
    "Sessions": ("InferenceSession", "SessionOptions", "RunOptions", "GraphOptimizationLevel", "ExecutionMode",
                 "ExecutionOrder", "NodeArg", "ModelMetadata"),
    "Values that stay where they are": ("OrtValue", "IOBinding"),
    "Custom operators": ("custom_op", "Op", "TensorType", "DType", "model_of"),
    "The GPU": ("gpu",),
    "Functions": (),
}  # fmt: skip
HEAD = """# API

Written by `python -m tools.api_docs` from the docstrings; do not edit. What differs from onnxruntime is in
[DIFFERENCES.md](DIFFERENCES.md), from onnxruntime-web in [javascript.md](javascript.md).

"""
SECTIONS = ("Args", "Attributes", "Class attributes", "Raises", "Returns", "Yields")


def page() -> str:
    """The whole page."""
    parts = [HEAD, _contents(), "# Python\n\n`import pyruntime as ort`\n"]
    for title, names in groups().items():
        parts += [f"\n## {title}\n", *(_entry(name) for name in names)]
    parts.append("\n## Exceptions\n\nonnxruntime's names; all derive from `OrtError`.\n\n")
    parts += [_exception(error) for error in _exceptions()]
    parts.append(
        "\n# JavaScript\n\nHow to use it: [javascript.md](javascript.md). Its declarations, `web/pyruntime.d.ts`:\n"
    )
    parts.append(_code((ROOT / "web" / "pyruntime.d.ts").read_text(), "ts"))
    parts.append("\n## Text\n\nHow to use it: [generate.md](generate.md). Exported by `web/pyruntime.js`, too:\n")
    parts.append(_code((ROOT / "web" / "text" / "generator.d.ts").read_text(), "ts"))
    parts.append("\n# Widget\n\nHow to use it: [widget.md](widget.md). Its declarations, `web/widget.d.ts`:\n")
    parts.append(_code((ROOT / "web" / "widget.d.ts").read_text(), "ts"))
    return "".join(parts)


def groups() -> dict[str, list[str]]:
    """Public names by group, exceptions aside."""
    errors = {error.__name__ for error in _exceptions()}
    taken = {name for names in GROUPS.values() for name in names}
    rest = sorted({*pyruntime.__all__} - taken - errors - {"errors"}, key=str.lower)
    return {title: [*names] or rest for title, names in GROUPS.items()}


def _exceptions() -> list[type[BaseException]]:
    public = [getattr(pyruntime, name) for name in pyruntime.__all__]
    return [value for value in public if inspect.isclass(value) and issubclass(value, BaseException)]


def _contents() -> str:
    listed = [
        f"- [{title}](#{title.lower().replace(' ', '-')}): {', '.join(names)}" for title, names in groups().items()
    ]
    return (
        "\n".join([*listed, "- [Exceptions](#exceptions)", "- [JavaScript](#javascript)", "- [Widget](#widget)"])
        + "\n\n"
    )


def _exception(error: type[BaseException]) -> str:
    bases = [base.__name__ for base in error.__bases__ if base is not object]
    return f"- **{error.__name__}** ({', '.join(bases)}): {_one_line(error)}\n"


def _one_line(value: object) -> str:
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())


def _entry(name: str) -> str:
    value = getattr(pyruntime, name)
    if inspect.isclass(value):
        return _class(name, value)
    if callable(value):
        return f"\n### {name}\n" + _code(f"{name}{_signature(value)}", "python") + _prose(value)
    return _class(name, type(value), is_object=True)


def _class(name: str, cls: type, *, is_object: bool = False) -> str:
    text = f"\n### {name}\n"
    if issubclass(cls, enum.Enum):
        members = ", ".join(f"`{member.name}`" for member in cls)
        return text + _prose(cls) + f"\n{members}\n"
    if not is_object and "__init__" in vars(cls):
        text += _code(f"{name}{_signature(cls.__init__)}", "python")
    text += _prose(cls)
    for member, value in _members(cls):
        text += f"\n#### {name}.{member}\n"
        if not isinstance(value, property):
            text += _code(f"{member}{_signature(value)}", "python")
        text += _prose(value.fget if isinstance(value, property) else value)
    return text


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties, those of base classes among them, in the order in which they are written."""
    seen: set[str] = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("pyruntime"):
            continue
        for name, value in vars(base).items():
            value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            if (
                not name.startswith("_")
                and name not in seen
                and (inspect.isfunction(value) or isinstance(value, property))
            ):
                seen.add(name)
                if inspect.getdoc(value):
                    yield name, value


def _signature(function: Any) -> str:
    """Parameters and result, on one line where they fit, else one a line."""
    signature = inspect.signature(function)
    parts: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        named = any(part == "*" or part.startswith("*") for part in parts)
        if parameter.kind is parameter.KEYWORD_ONLY and not named:
            parts.append("*")
        parts.append(_parameter(parameter))
        if parameter.kind is parameter.POSITIONAL_ONLY and not _more_positional(signature, parameter.name):
            parts.append("/")
    result = (
        "" if signature.return_annotation in (signature.empty, None, "None") else f" -> {signature.return_annotation}"
    )
    line = f"({', '.join(parts)}){result}"
    return line if len(line) <= 90 else "(\n" + "".join(f"    {part},\n" for part in parts) + f"){result}"


def _more_positional(signature: inspect.Signature, name: str) -> bool:
    names = [p.name for p in signature.parameters.values() if p.kind is p.POSITIONAL_ONLY]
    return names[-1] != name


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
    kind = "" if parameter.annotation is parameter.empty else f": {parameter.annotation}"
    if parameter.default is parameter.empty:
        return f"{stars}{parameter.name}{kind}"
    default = parameter.default
    shown = (
        str(default) if isinstance(default, enum.Enum) else re.sub(r"^<.*>$", "...", repr(default)).replace("'", '"')
    )
    return f"{stars}{parameter.name}{kind} = {shown}"


def _code(text: str, language: str) -> str:
    return f"\n```{language}\n{text.rstrip()}\n```\n"


def _prose(value: object) -> str:
    """A docstring as Markdown: sections as lists, indented examples as code."""
    blocks = (inspect.getdoc(value) or "").split("\n\n")
    return "".join(_block(block) for block in blocks)


def _block(block: str) -> str:
    head, _, rest = block.partition("\n")
    if head.rstrip(":") in SECTIONS and head.endswith(":"):
        items = re.split(r"\n(?! )", textwrap.dedent(rest))
        lines = [" ".join(item.split()) for item in items if item.strip()]
        if head == "Returns:" or head == "Yields:":
            lines = [" ".join(lines)]
        return f"\n**{head[:-1]}**\n\n" + "".join(f"- {_named(line)}\n" for line in lines)
    if head.startswith((" ", "\t")):
        return _code(textwrap.dedent(block), "python")
    inline = re.match(r"(Raises|Source): ?(.*)", block, re.S)
    return f"\n{' '.join(block.split())}\n" if not inline else f"\n**{inline[1]}** {' '.join(inline[2].split())}\n"


def _named(line: str) -> str:
    name, colon, text = line.partition(": ")
    names = name.split(", ")
    if colon and all(re.fullmatch(r"[\w.*]+( \([^)]*\))?", part) for part in names):
        return ", ".join(f"`{part}`" for part in names) + f": {text}"
    return line


def main(argv: Sequence[str]) -> int:
    made = page()
    if "--check" in argv:
        return int(not TARGET.is_file() or TARGET.read_text() != made)
    TARGET.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
