"""Bytecode as its source has it, whatever the process that compiled it (tools/snapshot/canonical.py)."""

from __future__ import annotations

import marshal
import os
import subprocess
import sys
from types import CodeType
from typing import Any

import pytest

from tools.devkit.shell import ROOT
from tools.snapshot.canonical import HEADER, canonical

COMPILE = """
import marshal, sys
source, words = sys.argv[1:]
held = [sys.intern(word) for word in words.split("|")]
sys.stdout.buffer.write(bytes(16) + marshal.dumps(compile(source, "module.py", "exec", dont_inherit=True)))
"""
SOURCE = '''
"""A module: of sets, signs and text."""
KINDS = {"one", "two words", "ä", b"bytes", 3, 2.5, 1j, 1 << 70, None, ..., True}
SIGNS = ("{", "}", " ", "name", "two words")

def find(sign, kinds=("{", "two words")):
    """A generator in a function in a module."""
    if sign in {"a", "b c", "{", "}"}:
        return [kind for kind in kinds if kind not in ("one", frozenset())]
    return (lambda naïve: f"{naïve} {sign}{{")(sign)

FOUND = find("{"), find("z")
'''


def compiled(source: str, seed: int, *interned: str) -> bytes:
    """A .pyc of another process."""
    command = [sys.executable, "-c", COMPILE, source, "|".join(interned)]
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    return subprocess.run(command, env=environment, check=True, capture_output=True).stdout


def dumped(value: Any) -> bytes:
    return bytes(HEADER) + marshal.dumps(value)


def test_canonical__other_seeds_and_interned_strings__the_same_bytes() -> None:
    others = ("{", "}", " ", "two words", "z", "b c", "ä", "A generator in a function in a module.")
    found = {canonical(compiled(SOURCE, seed, *words)) for seed in (1, 2, 3) for words in ((), others)}
    assert len(found) == 1


def test_canonical__objects_that_are_referenced_elsewhere__the_same_bytes() -> None:
    words = [" ".join(("some", "words")), b"".join((b"by", b"tes"))]
    (held,) = {dumped((words[0], words[1], 1 << 80))}
    free = dumped((" ".join(("some", "words")), b"".join((b"by", b"tes")), 1 << 80))
    assert held != free, "marshal writes what it is to be rid of"
    assert canonical(held) == canonical(free)


@pytest.mark.parametrize(
    "name", ["pyruntime/ir/dtype.py", "pyruntime/ops/text/re2_syntax.py", "pyruntime/generate/options.py"]
)
def test_canonical__modules__are_the_same_code(name: str) -> None:
    code = compile((ROOT / name).read_bytes(), name, "exec", dont_inherit=True)
    made = canonical(dumped(code))
    assert marshal.loads(made[HEADER:]) == code
    assert canonical(made) == made
    assert len(made) <= len(dumped(code))


def test_canonical__module__runs_as_before() -> None:
    code = marshal.loads(canonical(compiled(SOURCE, 5))[HEADER:])
    assert isinstance(code, CodeType)
    values: dict[str, Any] = {}
    exec(code, values)
    expected: dict[str, Any] = {}
    exec(compile(SOURCE, "module.py", "exec"), expected)
    for name in ("KINDS", "SIGNS", "FOUND", "__doc__"):
        assert values[name] == expected[name]
    assert values["find"].__name__ is sys.intern("find")


def test_canonical__header__stays() -> None:
    header = bytes(range(HEADER))
    assert canonical(header + marshal.dumps(1.5))[:HEADER] == header


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"(\x02\x00\x00\x00N", "too early"), (b"?", "unknown kind"), (b"NN", "bytes after"), (b"z", "too early")],
)
def test_canonical__no_bytecode__is_refused(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        canonical(bytes(HEADER) + data)
