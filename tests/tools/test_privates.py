"""Private attributes that a module reads of another one are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.lint.privates import complaints


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("print(session._program)", ["session._program"]),
        ("session._trace = None", ["session._trace"]),
        ("class A:\n    def f(self):\n        self._x = self._y\n        super()._z()", []),
        ("class A:\n    def f(self, other):\n        self._x = other._x", []),
        ("class A:\n    def _f(self): ...\nmade = A()\nmade._f()", []),
        ("print(pair._fields, value.__dict__)", []),
    ],
    ids=["read", "written", "own", "of the same module", "method of the same module", "no private names"],
)
def test_privates__of_another_module__are_named(source: str, found: list[str], tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(source)
    assert [line.split("`")[1] for line in complaints(file)] == found
