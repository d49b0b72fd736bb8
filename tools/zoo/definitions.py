"""Models of the zoo: the TOML files of definitions/, one for each source."""

from __future__ import annotations

import argparse
import tomllib
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["CACHE", "SIZES", "SOURCES", "Attempt", "Definition", "arguments", "definitions"]

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache" / "zoo"
SOURCES = ("transformers", "timm", "torchvision", "diffusers")

SIZES: Mapping[str, tuple[int, int]] = {
    "b": (2, 3),
    "s": (10, 7),
    "t": (6, 9),
    "f": (64, 96),
    "n": (1600, 2400),
    "h": (64, 96),
    "w": (64, 96),
}
"""Sizes by letter, of the export and of the second run: batch, sequence, target sequence, frames, samples, picture."""

NEW_OPSETS, OLD_OPSETS = (18, 20, 21, 22, 23), (17, 18, 20)


@dataclass(frozen=True)
class Attempt:
    """A way to export a model.

    Attributes:
        exporter: 'new' (torch.export) or 'old' (TorchScript). dynamic: axes named by letters are dynamic.
    """

    exporter: str
    opset: int
    dynamic: bool


@dataclass(frozen=True)
class Definition:
    """A model of the zoo.

    Attributes:
        source: one of SOURCES. name: model type, family or class in the source; also the definition's name.
        make: argument of the source's builder. config: settings that make the model small.
        inputs: name to 'kind dim dim ...': kinds are tokens, ones, normal, uniform, zeros, mask; dims are numbers or
            letters of SIZES.
        exporter: the one to try first; by default spread evenly by name. sizes: other values for letters.
    """

    source: str
    name: str
    make: str
    inputs: Mapping[str, str]
    config: Mapping[str, Any] = field(default_factory=dict)
    exporter: str = ""
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The model's file; next to it are its inputs (.npz) and its export report (.json)."""
        return CACHE / self.source / f"{self.name}.onnx"

    def attempts(self) -> list[Attempt]:
        """Return the ways to export in order of preference, which depends only on the name."""
        chance = zlib.crc32(self.name.encode())
        first = self.exporter or ("old" if chance % 2 == 0 else "new")
        new = Attempt("new", NEW_OPSETS[chance // 2 % len(NEW_OPSETS)], True)
        old = Attempt("old", OLD_OPSETS[chance // 2 % len(OLD_OPSETS)], chance // 16 % 4 != 0)
        order = [new, old] if first == "new" else [old, new]
        return [*order, Attempt(order[0].exporter, order[0].opset, False)]

    def shape(self, name: str, run: int) -> list[int]:
        """Return the shape of an input in the export (0) or in the second run (1)."""
        sizes = {**SIZES, **self.sizes}
        return [int(d) if d.lstrip("-").isdigit() else sizes[d][run] for d in self.inputs[name].split()[1:]]

    def axes(self, name: str) -> dict[int, str]:
        """Return the axes of an input that may be dynamic, with their letters."""
        return {i: d for i, d in enumerate(self.inputs[name].split()[1:]) if not d.isdigit()}


def arguments(text: str | None) -> argparse.ArgumentParser:
    """What commands on the zoo take: names of models, a source."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=())
    parser.add_argument("--source", choices=SOURCES, default="")
    return parser


def definitions(source: str = "", names: Collection[str] = ()) -> Iterator[Definition]:
    """Yield all definitions, those of a source, or those of these names."""
    for each in SOURCES:
        if source and each != source:
            continue
        data = tomllib.loads((HERE / "definitions" / f"{each}.toml").read_text())
        for key, entry in data["models"].items():
            if names and key not in names:
                continue
            given = entry if isinstance(entry, dict) else {"kind": entry}
            kind = data["kinds"].get(given.get("kind", ""), {})
            yield Definition(
                source=each,
                name=key,
                make=given.get("make", kind.get("make", key)),
                inputs=given.get("inputs") or kind["inputs"],
                config={**kind.get("config", {}), **given.get("config", {})},
                exporter=given.get("exporter", kind.get("exporter", "")),
                sizes={k: (v[0], v[1]) for k, v in {**kind.get("sizes", {}), **given.get("sizes", {})}.items()},
            )
