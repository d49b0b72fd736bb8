"""The JavaScript modules that a device calls, bundled into one script, for pages that do not provide them (notebooks).

A script, because `eval` runs source text synchronously, while `import` is asynchronous and needs a URL: a content
security policy may refuse Blob URLs, and Python can reach `import` only through `eval`.
"""

from __future__ import annotations

import posixpath
import re
from importlib import resources
from pathlib import Path

__all__ = ["bundled", "reached"]

_IMPORT = re.compile(r"^import (\{(?:(?! as )[^}])*\}) from '(\.{1,2}/[\w/-]+\.js)';\n", re.M)
_PASSED = re.compile(r"^export \{([\w, ]*)\} from '(\.{1,2}/[\w/-]+\.js)';\n", re.M)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function\*?|class|const) (\w+))", re.M)
_OTHER = re.compile(r"^(?:import|export)\b.*|\bimport\s*\((?!')", re.M)


def _root() -> Path:
    """Return `web/` inside the wheel, or next to the package in a source checkout."""
    package = Path(str(resources.files("pyruntime")))
    inside = package / "web"
    return inside if inside.is_dir() else package.parent / "web"


def reached(module: str) -> dict[str, str]:
    """Return the source of a module of `web/` and of all modules it imports, by path; imported modules come first."""
    found: dict[str, str] = {}
    _reach(module, found, ())
    return found


def _reach(module: str, found: dict[str, str], above: tuple[str, ...]) -> None:
    if module in above:
        raise ValueError(f"web/{module} imports itself, by way of {', '.join(above)}")
    text = (_root() / module).read_text("utf-8")
    for pattern in (_IMPORT, _PASSED):
        for match in pattern.finditer(text):
            if (needed := _resolve(module, match[2])) not in found:
                _reach(needed, found, (*above, module))
    found[module] = text


def _resolve(module: str, specifier: str) -> str:
    """Return the path below `web/` of a module that `module` imports as `specifier`."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(module), specifier))


def bundled(module: str) -> str:
    """Return a JavaScript expression whose value is an object with the exports of a module of `web/`.

    Raises:
        ValueError: modules import each other in a cycle, or by a form of import that is not supported.
    """
    texts = reached(module)
    names = {name: f"module{i}" for i, name in enumerate(texts)}
    parts = [f"const {names[name]} = {_function(name, text, names)}();\n" for name, text in texts.items()]
    return f"(() => {{\n'use strict';\n{''.join(parts)}return {names[module]};\n}})()"


def _function(name: str, text: str, names: dict[str, str]) -> str:
    """Return a module as a JavaScript function that returns its exports."""
    exports = _EXPORT.findall(text)

    def passed(match: re.Match[str]) -> str:
        exports.extend(f"{each}: {names[_resolve(name, match[2])]}.{each}" for each in re.findall(r"\w+", match[1]))
        return ""

    text = _IMPORT.sub(lambda match: f"const {match[1]} = {names[_resolve(name, match[2])]};\n", text)
    text = _EXPORT.sub("", _PASSED.sub(passed, text))
    text = text.replace("import.meta.url", "undefined")  # a script has none; callers handle that
    if other := _OTHER.search(text):
        raise ValueError(f"web/{name} has {other[0]!r}, which bundled.py does not know")
    return f"(() => {{\n{text}return {{ {', '.join(exports)} }};\n}})"
