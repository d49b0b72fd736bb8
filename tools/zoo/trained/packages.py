"""Packages and their models: the TOML files of packages/, one for each kind of input."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from tools.devkit.pins import NpmPackage
from tools.zoo.definitions import CACHE

__all__ = ["FOLDER", "KINDS", "TREATMENTS", "Case", "Model", "Package", "cases", "located", "models", "packages"]

HERE = Path(__file__).parent / "packages"
KINDS = ("pictures", "sound", "text", "numbers")
FOLDER = CACHE / "trained"
TREATMENTS = ("ort", "half", "dynamic")
"""What some models go through: the ORT format, onnxruntime's float16 and 8-bit tools."""


@dataclass(frozen=True)
class Package:
    """A release of a package.

    Attributes:
        file: name of the wheel; empty for npm packages.
        digest: the wheel's SHA-256, or npm's integrity of the tarball.
    """

    name: str
    version: str
    file: str
    digest: str

    @property
    def npm(self) -> NpmPackage | None:
        """Return the pin of an npm package; None for wheels."""
        return None if self.file else NpmPackage(self.name, self.version, self.digest)


@dataclass(frozen=True)
class Model:
    """A model in a package.

    Attributes:
        path: the file in the package; a .gz file is decompressed.
        title: the model's common name.
        inputs: the kind of values of each input, for recipes.values.
        recipe: generates all inputs, if values depend on one another; a name of recipes.RECIPES.
        sizes: letters in shapes, and their values in each run.
        steps: number of steps in a run.
        back: inputs that are outputs of the previous step.
        treat: names of TREATMENTS.
        parts: 'package:path' of files that are concatenated to the model.
        external: external data files of the model.
        assets: 'package:path' of files with values of inputs, such as voices.
        half: whether the model computes in float16.
        large: whether its intermediate values exceed the memory, so that no plan for a desktop GPU is verified.
    """

    package: Package
    path: str
    title: str
    kind: str
    inputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    recipe: str = ""
    name: str = ""
    sizes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    steps: int = 1
    back: Mapping[str, str] = field(default_factory=dict)
    treat: Sequence[str] = ()
    parts: Sequence[str] = ()
    external: Sequence[str] = ()
    assets: Sequence[str] = ()
    half: bool = False
    large: bool = False

    @property
    def key(self) -> str:
        """Name of the model in lists and folders."""
        path = PurePosixPath(self.path.removesuffix(".gz"))
        return f"{self.package.name.removeprefix('@').replace('/', '-')}/{self.name or path.stem}"

    @property
    def runs(self) -> int:
        """Number of runs, each with other sizes."""
        return max((len(values) for values in self.sizes.values()), default=1)


@dataclass(frozen=True)
class Case:
    """A model as shipped, or after a treatment."""

    model: Model
    treatment: str = ""

    @property
    def key(self) -> str:
        """Name of the case in lists and folders."""
        return self.model.key + (f"+{self.treatment}" if self.treatment else "")

    @property
    def result(self) -> Path:
        """The file of results; next to it are inputs and onnxruntime's outputs (.npz)."""
        return FOLDER / "results" / f"{self.key}.json"


def located(text: str) -> tuple[Package, str]:
    """Parse 'package:path'."""
    name, path = text.split(":", 1)
    return packages()[name], path


def packages() -> dict[str, Package]:
    """Return every package by name."""
    return {p.name: p for kind in KINDS for p, _ in _entries(kind)}


def models(names: Sequence[str] = ()) -> Iterator[Model]:
    """Yield all models, or those of these packages or patterns of keys."""
    for kind in KINDS:
        for package, entry in _entries(kind):
            common = {k: v for k, v in entry.items() if k in Model.__dataclass_fields__ and k != "name"}
            for told in entry.get("models", ()):
                model = Model(package=package, kind=kind, **{**common, **told})
                if not names or any(n == package.name or fnmatchcase(model.key, n) for n in names):
                    yield model


def cases(names: Sequence[str] = ()) -> Iterator[Case]:
    """Yield every model as shipped, then treated."""
    for model in models(names):
        yield Case(model)
        yield from (Case(model, treatment) for treatment in model.treat)


def _entries(kind: str) -> Iterator[tuple[Package, Mapping[str, Any]]]:
    for entry in tomllib.loads((HERE / f"{kind}.toml").read_text())["packages"]:
        digest = entry.get("sha256") or entry["integrity"]
        yield Package(entry["name"], entry["version"], entry.get("file", ""), digest), entry
