"""The notebook site's parts that need no browser: lock entries, the stand-in, contents, pins, comparison."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tools.devkit import pins
from tools.devkit.notebook_kernel import REQUIREMENTS, entry, write_kernel, write_stand_in
from tools.devkit.notebook_site import NOTEBOOKS, write_contents
from tools.devkit.notebook_site import REQUIREMENTS as TOOLS
from tools.devkit.shell import sha256
from tools.notebooks import Cell, differences, read, varies


def wheel(folder: Path, name: str, requires: tuple[str, ...] = ()) -> Path:
    path = folder / f"{name}-1.0-py3-none-any.whl"
    metadata = "".join([f"Name: {name}\nVersion: 1.0\n", *(f"Requires-Dist: {r}\n" for r in requires)])
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", "")
        archive.writestr(f"{name}_more.py", "")
        archive.writestr(f"{name}-1.0.dist-info/METADATA", metadata)
    return path


def test_entry__wheel_with_requirements__names_imports_and_dependencies(tmp_path: Path) -> None:
    path = wheel(tmp_path, "some", ("Prompt_Toolkit (>=3,<4)", "numpy>=1.26 ; python_version > '3'", "x; extra == 'y'"))
    found = entry(path)
    assert (found["name"], found["version"], found["file_name"]) == ("some", "1.0", path.name)
    assert found["imports"] == ["some", "some_more"]
    assert found["depends"] == ["numpy", "prompt-toolkit"]
    assert found["sha256"] == sha256(path)


def test_write_kernel__what_is_not_there__is_no_dependency(tmp_path: Path) -> None:
    runtime, startup, made = tmp_path / "runtime", tmp_path / "startup", tmp_path / "made"
    runtime.mkdir()
    startup.mkdir()
    numpy = {"name": "numpy", "file_name": "numpy.whl", "depends": []}
    (runtime / "pyodide-lock.json").write_text(json.dumps({"info": {}, "packages": {"numpy": numpy}}))
    wheel(startup, "ipython", ("numpy", "pexpect>4"))
    write_kernel(made, runtime, startup)
    assert {"notebook_kernel.js", "snapshot.js", "pyodide-lock.json"} <= {path.name for path in made.iterdir()}
    packages = json.loads((made / "pyodide-lock.json").read_text())["packages"]
    assert packages.keys() == {"numpy", "ipython", "sqlite3"}
    assert packages["ipython"]["depends"] == ["numpy", "sqlite3"]


def test_stand_in__made_twice__has_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    first, second = write_stand_in(tmp_path), write_stand_in(tmp_path / "again")
    assert first.read_bytes() == second.read_bytes()
    assert entry(first)["imports"] == []


def test_contents__files_given__are_copied_and_listed(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"12345")
    write_contents(tmp_path / "site", dict.fromkeys(("a.ipynb", "b.onnx", "c/d/e.json"), source))

    def listing(folder: str) -> dict[str, Any]:
        made: dict[str, Any] = json.loads((tmp_path / "site" / "api" / "contents" / folder / "all.json").read_text())
        return made

    def entries(folder: str) -> list[tuple[str, str, str, int | None]]:
        return [(c["name"], c["path"], c["type"], c["size"]) for c in listing(folder)["content"]]

    assert entries("") == [
        ("a.ipynb", "a.ipynb", "notebook", 5),
        ("b.onnx", "b.onnx", "file", 5),
        ("c", "c", "directory", None),
    ]
    assert entries("c") == [("d", "c/d", "directory", None)]
    assert entries("c/d") == [("e.json", "c/d/e.json", "file", 5)]
    assert (listing("")["type"], listing("")["path"]) == ("directory", "")
    assert (listing("c/d")["name"], listing("c/d")["path"]) == ("d", "c/d")
    assert (tmp_path / "site" / "files" / "c" / "d" / "e.json").read_bytes() == b"12345"
    assert (tmp_path / "site" / "files" / "b.onnx").read_bytes() == b"12345"


@pytest.mark.parametrize("file", [REQUIREMENTS, TOOLS])
def test_requirements__every_one__is_pinned_with_hashes_and_without_addresses(file: Path) -> None:
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    packages = [i for i, line in enumerate(lines) if not line.startswith(" ")]
    assert packages and all(re.match(r"[\w.-]+==[\w.]+ ", lines[i]) for i in packages)
    assert all("--hash=sha256:" in lines[i + 1] for i in packages)
    assert "://" not in "".join(lines)


def test_kernel__its_package__is_below_the_one_for_the_next_pyodide() -> None:
    found = re.search(r"jupyterlite-pyodide-kernel==0\.(\d+)", TOOLS.read_text())
    assert found and int(found[1]) < 8 and pins.PYODIDE_VERSION.startswith("0.29.")


def test_notebooks__committed__hold_no_output_that_varies() -> None:
    paths = sorted(NOTEBOOKS.glob("*.ipynb"))
    assert len(paths) == 4
    for path in paths:
        for cell in read(path):
            if cell["cell_type"] == "code":
                assert not (varies(cell) and cell["outputs"]), cell["id"]
                assert not any(o["output_type"] == "error" for o in cell["outputs"]), cell["id"]


def test_differences__another_output_an_error_or_nothing__is_told() -> None:
    def cell(*outputs: dict[str, Any], tags: tuple[str, ...] = ()) -> Cell:
        return {"cell_type": "code", "id": "c", "source": "1", "metadata": {"tags": tags}, "outputs": list(outputs)}

    def stream(text: str) -> dict[str, Any]:
        return {"output_type": "stream", "name": "stdout", "text": text}

    error = {"output_type": "error", "ename": "Fail", "evalue": "broken", "traceback": []}
    assert not list(differences([cell(stream("ab"))], [cell(stream("a"), stream("b"))]))
    assert not list(differences([cell(tags=("varies",))], [cell(stream("any"), tags=("varies",))]))
    for ran in (cell(stream("ac")), cell(), cell(error)):
        assert len(list(differences([cell(stream("ab"))], [ran]))) == 1
    assert len(list(differences([cell(tags=("varies",))], [cell(tags=("varies",))]))) == 1
    assert len(list(differences([cell(tags=("varies",))], [cell(error, tags=("varies",))]))) == 1
    assert len(list(differences([cell()], [cell() | {"source": "2"}]))) == 1


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_stored_outputs__of_each_notebook__are_strings(path: Path) -> None:
    """JupyterLite shows a list of lines with commas between them."""
    outputs = [output for cell in read(path) for output in cell.get("outputs", ())]
    texts = [text for o in outputs for text in (o.get("text", ""), *o.get("data", {}).values())]
    assert outputs and all(isinstance(text, str) for text in texts)
