"""Wheels written again with bytecode (tools/snapshot/wheels.py)."""

from __future__ import annotations

import base64
import builtins
import csv
import hashlib
import importlib.util
import io
import marshal
import subprocess
import sys
import zipfile
from pathlib import Path
from py_compile import PycInvalidationMode, compile

import pytest

from tools.snapshot.wheels import read_bytecode, read_wheel, source_of, with_bytecode

RECORD = "small-1.0.dist-info/RECORD"
PART = importlib.util.cache_from_source("small/inner/part.py")
SOURCES = {
    "small/__init__.py": b"from small.inner.part import VALUE\n",
    "small/inner/__init__.py": b"",
    "small/inner/part.py": b"VALUE = 41 + 1\n",
    "small/table.txt": b"1, 2\n",
    "small-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: small\nVersion: 1.0\n",
    "small-1.0.dist-info/licenses/LICENSE": b"Do as you like.\n",
}


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "small-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in SOURCES.items():
            archive.writestr(name, data)
        archive.writestr(RECORD, "".join(f"{name},,\n" for name in (*SOURCES, RECORD)))
    return path


@pytest.fixture
def compiled(tmp_path: Path) -> dict[str, bytes]:
    """Bytecode of the wheel's modules, and of a module of another wheel."""
    made = {}
    for name in (*(n for n in SOURCES if n.endswith(".py")), "other/module.py"):
        source = tmp_path / "site" / name
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_bytes(SOURCES.get(name, b""))
        path = compile(str(source), dfile=name, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH, doraise=True)
        assert path
        made[Path(path).relative_to(tmp_path / "site").as_posix()] = Path(path).read_bytes()
    return made


def test_source_of__path_of_bytecode__is_pep_3147s() -> None:
    for source in ("a/b.py", "c.py", "a/b/__init__.py"):
        assert source_of(importlib.util.cache_from_source(source)) == source


def test_wheels__of_two_builds__are_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    """Other processes, with other things held and interned, compiled the same sources."""
    made = []
    for build, held in enumerate(((), [41, sys.intern("small.inner.part"), sys.intern("{}")])):
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as opened:
            code = builtins.compile('TEXT = "{}", "small.inner.part"', "part.py", "exec")
            texts = tuple(sys.intern(t) if held else t + "" for t in code.co_consts[0])
            flagged = marshal.dumps(code.replace(co_consts=(texts, None)))
            opened.writestr(PART, bytes(16) + flagged)
        out = tmp_path / str(build)
        out.mkdir()
        made.append((flagged, with_bytecode(wheel, read_bytecode(archive.getvalue()), out).read_bytes()))
    assert made[0][0] != made[1][0]
    assert made[0][1] == made[1][1]


def test_with_bytecode__wheel__has_its_files_and_its_bytecode_and_a_true_record(
    wheel: Path, compiled: dict[str, bytes], tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    files = read_wheel(with_bytecode(wheel, compiled, tmp_path / "out"))
    mine = {name: data for name, data in compiled.items() if name.startswith("small/")}
    assert len(mine) == 3
    record = files.pop(RECORD)
    assert files == {**SOURCES, **mine}
    rows = list(csv.reader(io.StringIO(record.decode())))
    assert sorted(name for name, _, _ in rows) == sorted([*files, RECORD])
    assert rows[-1] == [RECORD, "", ""]
    for name, digest, size in rows:
        if name in mine:
            expected = base64.urlsafe_b64encode(hashlib.sha256(mine[name]).digest()).rstrip(b"=").decode()
            assert (digest, size) == (f"sha256={expected}", str(len(mine[name])))


def test_with_bytecode__again_and_in_another_order__same_bytes(
    wheel: Path, compiled: dict[str, bytes], tmp_path: Path
) -> None:
    made = []
    for folder, order in (("one", compiled), ("two", dict(reversed(compiled.items())))):
        (tmp_path / folder).mkdir()
        made.append(with_bytecode(wheel, order, tmp_path / folder).read_bytes())
    (tmp_path / "three").mkdir()
    made.append(with_bytecode(tmp_path / "one" / wheel.name, compiled, tmp_path / "three").read_bytes())
    assert made[0] == made[1] == made[2]


def test_with_bytecode__nothing_of_this_wheel__is_the_same_file(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    again = with_bytecode(wheel, {"other/__pycache__/module.cpython-313.pyc": b"x"}, tmp_path / "out")
    assert again.read_bytes() == wheel.read_bytes()


def test_with_bytecode__unpacked__is_imported_from_bytecode(
    wheel: Path, compiled: dict[str, bytes], tmp_path: Path
) -> None:
    """Its sources become syntax errors: no reader needs them."""
    (tmp_path / "out").mkdir()
    folder = tmp_path / "unpacked"
    with zipfile.ZipFile(with_bytecode(wheel, compiled, tmp_path / "out")) as archive:
        archive.extractall(folder)
    for source in folder.rglob("*.py"):
        source.write_text("no Python (")
    done = subprocess.run(
        [sys.executable, "-c", "import small; print(small.VALUE)"], cwd=folder, capture_output=True, text=True
    )
    assert done.stdout == "42\n", done.stderr
