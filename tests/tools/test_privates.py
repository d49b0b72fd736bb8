"""Private attributes that a module reads of another one are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.lint.privates import complaints, complaints_of_javascript


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("print(session._program)", ["session._program"]),
        ("session._trace = None", ["session._trace"]),
        ("class A:\n    def f(self):\n        self._x = self._y\n        super()._z()", []),
        ("class A:\n    def f(self, other):\n        self._x = other._x", []),
        ("class A:\n    def _f(self): ...\nmade = A()\nmade._f()", []),
        ("print(pair._fields, value.__dict__)", []),
        (
            "getattr(session, '_a', None); setattr(x.y, '_b', 1)",
            ["getattr(session, '_a', None)", "setattr(x.y, '_b', 1)"],
        ),
        (
            "operator.attrgetter('_a'); vars(x)['_b']; x.__dict__['_c']",
            ["operator.attrgetter('_a')", "vars(x)['_b']", "x.__dict__['_c']"],
        ),
        ("class A:\n    def f(self):\n        return getattr(self, '_x')", []),
        ("from pyruntime.ir.graph import Node, _order", ["import _order"]),
        ("module._exit()  # private: there is no other", []),
    ],
    ids=[
        "read",
        "written",
        "own",
        "of the same module",
        "method of the same module",
        "no private names",
        "in strings",
        "in mappings",
        "own in a string",
        "imported",
        "with a reason",
    ],
)
def test_privates__of_another_module__are_named(source: str, found: list[str], tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(source)
    assert sorted(line.split("`")[1] for line in complaints(file)) == sorted(found)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("print(session._program?._plan)", ["_program", "_plan"]),
        ("class A {\n  _x = 1;\n  static _y;\n  get _z() { return this['_w']; }\n}", ["_x", "_y", "_z", "_w"]),
        ("class A {\n  #x = 1;\n  f() { return this.#x + a_b.c_d; }\n}", []),
        ("// x._y\nconst { _module } = pyodide; pyodide._module._sbrk(0);", []),
    ],
    ids=["read", "defined", "private by the language", "comments, Pyodide"],
)
def test_privates__of_javascript__are_named(source: str, found: list[str], tmp_path: Path) -> None:
    file = tmp_path / "module.js"
    file.write_text(source)
    assert [line.split("`")[1] for line in complaints_of_javascript(file)] == found
