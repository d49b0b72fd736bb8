"""Limits of folders and names of files."""

from __future__ import annotations

from tools.lint.folders import MOST, complaints


def test_complaints__a_folder_of_too_many_files__is_named() -> None:
    files = [f"a/b{i}.py" for i in range(MOST)]
    assert complaints(files) == []
    assert complaints([*files, "a/more.py", "a/c/d.py"]) == [f"a: {MOST + 1} files; the limit is {MOST}"]


def test_complaints__paths_that_differ_in_case__are_named() -> None:
    found = complaints(["docs/MODELS.md", "docs/models.md", "docs/other.md"])
    assert found == ["docs/models.md: 2 paths, which are one on macOS and Windows"]
