"""Write the zoo's section of docs/MODELS.md, and compare the zoo with its known failures: python -m tools.zoo.table.

failures.toml lists, with reasons, models that cannot be exported, that onnxruntime cannot run, or that differ here. The
command fails for a failure that is not listed, and for a listed model that works.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.zoo.definitions import SOURCES, Definition, arguments, definitions
from tools.zoo.document import write_section

__all__ = ["Row", "render", "rows", "verdict"]

HERE = Path(__file__).parent

HEADER = """## Exported architectures

Architectures with random weights in small sizes, exported by torch.onnx.export, with the new exporter (torch.export) or
the old one (TorchScript), and run on NumPy and in Chromium on SwiftShader. The reference is onnxruntime's CPU provider.
If the export has dynamic axes, a second input size is tested too. Every run is repeated and must give identical bits.
Plans for a desktop GPU are also generated and checked for memory errors, but not run.

- **Open**: "one plan" means that dynamic shapes work without planning again.
- **Host**: nodes that run on the host, after how many stages planning waits for values; none where it is empty.
"""


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
    runs = stages[""] + stages["here"]
    share = f"{100 * stages[''] / runs:.1f} %" if runs else "-"
    hosts = sum(1 for row in table if row.stage == "" and row.result.get("host"))
    return (
        f"| {len(table)} | {stages['unknown']} | {len(table) - stages['export'] - stages['unknown']} | {runs} "
        f"| {stages['']} | {share} | {hosts} |"
    )


def render(table: Sequence[Row], listed: Mapping[str, tuple[str, str]]) -> str:
    """Return the section's text."""
    parts = [HEADER]
    parts.append("| source | defined | not run yet | exported | onnxruntime runs | agree | | with host steps |")
    parts.append("|---|---|---|---|---|---|---|---|")
    groups = [(s, [r for r in table if r.definition.source == s]) for s in SOURCES]
    parts += [f"| {source} {counted(group)}" for source, group in groups if group]
    parts.append(f"| all {counted(table)}")
    for source, group in groups:
        if not group:
            continue
        parts.append(f"\n### {source}\n\n| model | exporter | opset | result | open | host |")
        parts.append("|---|---|---|---|---|---|")
        parts += [_line(row, listed) for row in group if row.stage != "unknown"]
        if waiting := ", ".join(row.definition.name for row in group if row.stage == "unknown"):
            parts.append(f"\nNot run yet: {waiting}.")
    return "\n".join(parts) + "\n"


def _line(row: Row, listed: Mapping[str, tuple[str, str]]) -> str:
    name = row.definition.name
    if row.definition.make not in (name, ""):
        name += f" ({row.definition.make.removeprefix(name + ':')})"
    reason = listed.get(row.name, ("", ""))[1]
    if row.stage == "export":
        return f"| {name} | | | not exported: {reason} | | |"
    told, found = row.export, row.result
    head = f"| {name} | {told.get('exporter', '')} | {told.get('opset', '')} "
    if row.stage == "onnxruntime":
        return f"{head}| onnxruntime does not run it: {reason} | | |"
    result = f"differs: {reason}" if row.stage else "agrees"
    return f"{head}| {result} | {_open(row)} | {_host(found)} |"


def _open(row: Row) -> str:
    if not row.export.get("dynamic") or row.result.get("runs", 1) < 2:
        return ""
    return "one plan" if row.result.get("open") and not row.result.get("closed") else "a plan for each size"


def _host(found: Mapping[str, Any]) -> str:
    host = Counter(found.get("host", {}))
    text = ", ".join(f"{n} × {op}" if n > 1 else op for op, n in sorted(host.items()))
    waits = found.get("stages", 1) - 1
    if waits:
        text += f"{'; ' if text else ''}{waits} {'wait' if waits == 1 else 'waits'}"
    return text


def main() -> int:
    parser = arguments(__doc__)
    args = parser.parse_args()
    table, listed = list(rows(args.source, args.names)), failures()
    if not args.source and not args.names:
        write_section(render(table, listed))
    wrong = verdict(table, listed)
    unknown = sorted(set(listed) - {f"{d.source}/{d.name}" for d in definitions()})
    if unknown:
        wrong += "\nlisted and not defined: " + ", ".join(unknown)
    print(wrong or f"{len(table)} models: all as listed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
