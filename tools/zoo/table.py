"""Write docs/architectures.md, and compare the zoo with its known failures: python -m tools.zoo.table.

failures.toml lists, with reasons, models that cannot be exported, that onnxruntime cannot run, or that differ here. The
command fails for a failure that is not listed, and for a listed model that works.
"""

from __future__ import annotations

import json
import sys
import textwrap
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.zoo.definitions import SOURCES, Definition, arguments, definitions

__all__ = ["Row", "render", "rows", "verdict"]

HERE = Path(__file__).parent

PAGE = Path(__file__).parents[2] / "docs" / "architectures.md"

HEADER = """# Tested architectures

<!-- written by `python3 dev.py zoo` -->

Architectures of four libraries, with random weights in small sizes, exported by torch.onnx.export and run on NumPy and
in Chromium on SwiftShader. The reference is onnxruntime's CPU provider. If the export has dynamic axes, a second input
size is tested too. Every run is repeated and must give identical bits. Plans for a desktop GPU are also generated and
checked for memory errors, but not run.

{exports}

Those without a remark agree, and all of their nodes run on the GPU.
"""

FORMS = {
    "one plan": "Dynamic axes, one plan for all sizes",
    "a plan for each size": "Dynamic axes, a plan for each size",
    "": "Fixed sizes",
}
"""Headings of the lists of names, by what `_open` says."""


@dataclass(frozen=True)
class Row:
    """Results for a model.

    Attributes:
        stage: where it failed: 'export', 'onnxruntime' or 'here'; '' if it agrees; 'unknown' if it was not run.
    """

    definition: Definition
    export: Mapping[str, Any]
    result: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Name in failures.toml."""
        return f"{self.definition.source}/{self.definition.name}"

    @property
    def stage(self) -> str:
        """See the class."""
        if not self.export:
            return "unknown"
        if "error" in self.export:
            return "export"
        if not self.result:
            return "unknown"
        if self.result["onnxruntime"]:
            return "onnxruntime"
        if self.wrong:
            return "here"
        return "" if "browser" in self.result else "unknown"

    @property
    def wrong(self) -> str:
        """The differences in this project."""
        parts = [f"{key}: {self.result[key]}" for key in ("native", "plan", "browser") if self.result.get(key)]
        return "; ".join(parts)

    @property
    def error(self) -> str:
        """The failure, on one line."""
        text = self.export.get("error") or self.result.get("onnxruntime") or self.wrong
        return " ".join(str(text).split())


def rows(source: str = "", names: Collection[str] = ()) -> Iterator[Row]:
    """Yield the results for each definition."""
    for definition in definitions(source, names):
        told, found = definition.path.with_suffix(".json"), definition.path.with_suffix(".result.json")
        yield Row(
            definition,
            json.loads(told.read_text()) if told.is_file() else {},
            json.loads(found.read_text()) if found.is_file() else {},
        )


def failures() -> dict[str, tuple[str, str]]:
    """Return stage and reason of each known failure, by model name.

    Raises:
        ValueError: a model that is listed twice, or without a reason.
    """
    found: dict[str, tuple[str, str]] = {}
    for entry in tomllib.loads((HERE / "failures.toml").read_text()).get("failures", []):
        for model in entry["models"]:
            if model in found or not entry["reason"].strip():
                raise ValueError(f"failures.toml: {model} is listed twice or without a reason")
            found[model] = entry["stage"], entry["reason"].strip()
    return found


def verdict(table: Sequence[Row], listed: Mapping[str, tuple[str, str]]) -> str:
    """Describe how the results differ from the list of known failures; '' if they do not."""
    lines = []
    for row in table:
        stage = listed.get(row.name, ("", ""))[0]
        if row.stage == "unknown":
            lines.append(f"{row.name}: not run")
        elif row.stage != stage:
            said = f"is listed to fail at: {stage}" if stage else "is not listed"
            lines.append(f"{row.name}: {said}; {f'fails at {row.stage}: {row.error}' if row.stage else 'it works'}")
    return "\n".join(lines)


def counted(table: Sequence[Row]) -> str:
    """Return the counts of a source."""
    stages = Counter(row.stage for row in table)
    exported, runs = len(table) - stages["export"] - stages["unknown"], stages[""] + stages["here"]
    hosts = sum(1 for row in table if row.stage == "" and row.result.get("host"))
    return f"| {len(table)} | {exported} | {runs} | {stages['']} | {hosts} |"


def render(table: Sequence[Row], listed: Mapping[str, tuple[str, str]]) -> str:
    """Return the page's text."""
    parts = [HEADER.format(exports=_exports(table))]
    parts.append("| source | defined | exported | onnxruntime runs | agree | with nodes on the host |")
    parts.append("|---|--:|--:|--:|--:|--:|")
    groups = [(s, [r for r in table if r.definition.source == s]) for s in SOURCES]
    parts += [f"| {source} {counted(group)}" for source, group in groups if group]
    parts.append(f"| all {counted(table)}")
    for source, group in groups:
        if group:
            parts.append(f"\n## {source}")
            parts += _lists(group, listed)
    return "\n".join(parts) + "\n"


def _exports(table: Sequence[Row]) -> str:
    """Return how many were exported by which exporter, and to which opsets."""
    exports = [row.export for row in table if row.export.get("exporter")]
    counts = Counter(export["exporter"] for export in exports)
    opsets = [export["opset"] for export in exports]
    return (
        f"{counts['new']} were exported by the new exporter (torch.export) and {counts['old']} by the old one "
        f"(TorchScript), to opsets from {min(opsets, default=0)} to {max(opsets, default=0)}."
    )


def _lists(group: Sequence[Row], listed: Mapping[str, tuple[str, str]]) -> list[str]:
    """Return the names that agree by how they treat sizes, and a table of those with a remark."""
    remarks = {_title(row): remark for row in group if (remark := _remark(row, listed))}
    parts = []
    for form, heading in FORMS.items():
        names = [_title(row) for row in group if _open(row) == form and row.stage == ""]
        if names := [name for name in names if name not in remarks]:
            parts.append(f"\n### {heading}\n")
            listing = ", ".join(sorted(names, key=str.lower)) + "."
            parts += textwrap.wrap(listing, 120, break_long_words=False, break_on_hyphens=False)
    if remarks:
        parts.append("\n### With a remark\n\n| model | remark |\n|---|---|")
        parts += [f"| {name} | {remark} |" for name, remark in remarks.items()]
    return parts


def _title(row: Row) -> str:
    """Return the model's name, and what it is made of if that is not its name."""
    name, make = row.definition.name, row.definition.make
    return name if make in (name, "") else f"{name} ({make.removeprefix(name + ':')})"


def _remark(row: Row, listed: Mapping[str, tuple[str, str]]) -> str:
    """Return what is to say of a model apart from that it agrees and runs on the GPU; '' if nothing."""
    reason = listed.get(row.name, ("", ""))[1]
    said = {
        "unknown": "not run yet",
        "export": f"not exported: {reason}",
        "onnxruntime": f"onnxruntime does not run it: {reason}",
        "here": f"differs: {reason}",
        "": "",
    }[row.stage]
    if row.stage or not (host := _host(row.result)):
        return said
    return "; ".join(filter(None, ("agrees", host, _open(row))))


def _open(row: Row) -> str:
    if not row.export.get("dynamic") or row.result.get("runs", 1) < 2:
        return ""
    return "one plan" if row.result.get("open") and not row.result.get("closed") else "a plan for each size"


def _host(found: Mapping[str, Any]) -> str:
    """Return which nodes run on the host, and how often planning waits for values; '' if it is all on the GPU."""
    host = Counter(found.get("host", {}))
    nodes = ", ".join(f"{n} × {op}" if n > 1 else op for op, n in sorted(host.items()))
    waits = found.get("stages", 1) - 1
    parts = [f"on the host: {nodes}"] if nodes else []
    if waits:
        parts.append(f"shapes depend on values in {waits} {'place' if waits == 1 else 'places'}")
    return "; ".join(parts)


def main() -> int:
    parser = arguments(__doc__)
    args = parser.parse_args()
    table, listed = list(rows(args.source, args.names)), failures()
    if not args.source and not args.names:
        PAGE.write_text(render(table, listed))
    wrong = verdict(table, listed)
    unknown = sorted(set(listed) - {f"{d.source}/{d.name}" for d in definitions()})
    if unknown:
        wrong += "\nlisted and not defined: " + ", ".join(unknown)
    print(wrong or f"{len(table)} models: all as listed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
