"""Write docs/MODELS.md, and compare trained models with the known failures.

python -m tools.zoo.trained.table. failures.toml lists, with reasons, what onnxruntime cannot run, what differs here,
and what is not run in Chromium. The command fails for a failure that is not listed, and for a listed model that works.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.zoo.trained.check import arguments, selected, wrong_of
from tools.zoo.trained.packages import KINDS, Case, Model, cases

__all__ = ["Row", "failures", "render", "rows", "verdict"]

LISTED = Path(__file__).parent / "failures.toml"
PAGE = Path(__file__).parents[3] / "docs" / "MODELS.md"

HEADER = """# Tested files

<!-- written by `python3 dev.py zoo --trained` -->

Files that packages on PyPI and npm ship, as their users have them, with inputs of the real kind: photographs and pages,
a signal like speech whose states are fed back over several steps, token ids, tables, graphs. They run on NumPy and in
Chromium on SwiftShader; the reference is onnxruntime's CPU provider, with its optimisations and without. Whole numbers
are the same; other numbers agree to 2e-3 of the largest (float16: 2e-2), or as well as onnxruntime's own two levels
with one another. Where axes are open, a second size runs in the same session; each step is run twice in Chromium and
compared bit for bit.

A file that rounds activations to 8 bits may differ as a whole, as one value on the other side of a step changes all
that follows. It is then cut where it rounds, each part is fed with onnxruntime's values, and all parts have to agree.

- **Compared**: the lengths of the open axes in each run, and the steps of a run.
- **Difference**: the largest of all outputs, steps and sizes, natively and in Chromium, as a part of the largest value.
- **Also as**: what was made of the file and agrees, too, and its difference: the ORT format (ort), onnxruntime's
  float16 and its dynamic quantisation to 8 bits, which may differ by as much as these change the results.
- **Open**: whether one plan serves all sizes, or all after the first; empty where there is one size.
- **Host**: nodes that run on the host.
"""

TITLES = {"pictures": "Pictures", "sound": "Sound", "text": "Text", "numbers": "Tables, graphs, robots"}
NAMES = {"ort": "ort", "half": "float16", "dynamic": "8 bits"}


@dataclass(frozen=True)
class Row:
    """Results for a case."""

    case: Case
    found: Mapping[str, Any]

    @property
    def stage(self) -> str:
        """The stage that fails: 'tool', 'onnxruntime' or 'here'; '' if it agrees; 'unknown' if it was not run."""
        if not self.found:
            return "unknown"
        for stage in ("tool", "onnxruntime"):
            if self.found.get(stage):
                return stage
        if wrong_of(self.found):
            return "here"
        return "" if "browser" in self.found else "unknown"

    @property
    def error(self) -> str:
        """The failure, on one line."""
        told = self.found.get("tool") or self.found.get("onnxruntime") or wrong_of(self.found)
        return " ".join(str(told).split())


def rows(names: Sequence[str] = ()) -> list[Row]:
    """Return the results for each case."""
    return [Row(c, json.loads(c.result.read_text()) if c.result.is_file() else {}) for c in selected(names)]


def failures() -> dict[str, tuple[str, str]]:
    """Return stage and reason of each known failure, by key; the stage "Chromium" is for cases that are not run there.

    Raises:
        ValueError: a case that is listed twice, without a reason, or not defined.
    """
    found: dict[str, tuple[str, str]] = {}
    known = {case.key for case in cases()}
    for entry in tomllib.loads(LISTED.read_text()).get("failures", []):
        for key in entry["cases"]:
            if key in found or key not in known or not entry["reason"].strip():
                raise ValueError(f"failures.toml: {key} is listed twice, not defined, or without a reason")
            found[key] = entry["stage"], entry["reason"].strip()
    return found


def verdict(table: Sequence[Row], listed: Mapping[str, tuple[str, str]]) -> str:
    """Describe how the results differ from the list of known failures; '' if they do not."""
    lines = []
    for row in table:
        stage = listed.get(row.case.key, ("", ""))[0]
        if stage == "Chromium" and row.stage == "unknown" and row.found and "browser" not in row.found:
            continue
        if row.stage == "unknown":
            lines.append(f"{row.case.key}: not run")
        elif row.stage != stage:
            said = f"is listed to fail at: {stage}" if stage else "is not listed"
            what = f"fails at {row.stage}: {row.error}" if row.stage else "it works"
            lines.append(f"{row.case.key}: {said}; {what}")
    return "\n".join(lines)


def render(table: Sequence[Row], listed: Mapping[str, tuple[str, str]]) -> str:
    """Return the page's text."""
    shipped = [row for row in table if not row.case.treatment]
    agree = sum(not row.stage for row in shipped)
    treated = [row for row in table if row.case.treatment]
    packages = {name for row in shipped for name in _packages(row)}
    parts = [HEADER, f"{agree} of {len(shipped)} files of {len(packages)} packages agree, and "
             f"{sum(not row.stage for row in treated)} of {len(treated)} that were made of them.\n"]  # fmt: skip
    parts.append(
        f"Run natively: {_states(table, '')}.\nIn Chromium: {_states(table, 'browser_')}.\n"
        "In brackets: the fingerprint of pyruntime/, shaders/ and web/.\n"
    )
    for kind in KINDS:
        group = [row for row in shipped if row.case.model.kind == kind]
        if not group:
            continue
        parts.append(
            f"## {TITLES[kind]}\n\n| model | package | MB | compared | result | difference | also as | "
            "open | host |\n|---|---|---|---|---|---|---|---|---|"
        )
        parts += [_line(row, treated, listed) for row in group]
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def _states(table: Sequence[Row], program: str) -> str:
    """Return how many files ran with which state of the product: its commit and its fingerprint."""
    keys = f"{program}commit", f"{program}product"
    counts = Counter(tuple(row.found.get(key, "?") for key in keys) for row in table if keys[0] in row.found)
    told = [f"{n} file{'s' * (n > 1)} at commit {name} ({product})" for (name, product), n in counts.most_common()]
    return ", ".join(told) or "none"


def _packages(row: Row) -> list[str]:
    model = row.case.model
    return sorted({part.split(":", 1)[0] for part in model.parts} or {model.package.name})


def _line(row: Row, treated: Sequence[Row], listed: Mapping[str, tuple[str, str]]) -> str:
    model, found = row.case.model, row.found
    made = [other for other in treated if other.case.model.key == model.key]
    also = ", ".join(f"{NAMES[o.case.treatment]} {_difference(o.found)}" for o in made if not o.stage)
    results = [_result(row, listed)]
    results += [f"{NAMES[o.case.treatment]} {_result(o, listed)}" for o in made if o.stage]
    host = Counter(found.get("host", {}))
    hosted = ", ".join(f"{n} × {op}" if n > 1 else op for op, n in sorted(host.items()))
    megabytes = f"{found['bytes'] / 1e6:.1f}" if "bytes" in found else ""
    name = ", ".join(_packages(row))
    cells = [model.title, f"{name} {model.package.version}", megabytes, _compared(model), "; ".join(results)]
    cells += [_difference(found), also, _open(row), hosted]
    return "| " + " | ".join(cells) + " |"


def _compared(model: Model) -> str:
    counts = ((model.runs, "size"), (model.steps, "step"))
    sizes, steps = (f"{n} {what}s" if n > 1 else f"1 {what}" for n, what in counts)
    axes = "; ".join(f"{axis} = {', '.join(map(str, lengths))}" for axis, lengths in model.sizes.items())
    return f"{sizes} ({axes}), {steps}" if axes else f"{sizes}, {steps}"


def _difference(found: Mapping[str, Any]) -> str:
    whole, parts = (
        max((float(found[key]) for key in (f"native_{kind}", f"browser_{kind}") if key in found), default=-1.0)
        for kind in ("far", "parts")
    )
    if whole < 0:
        return ""
    said = "another length" if whole == float("inf") else f"{whole:.1g}"
    return f"{parts:.1g} in parts, {said} as a whole" if parts >= 0 else said


def _result(row: Row, listed: Mapping[str, tuple[str, str]]) -> str:
    reason = listed.get(row.case.key, ("", ""))[1]
    said = {
        "": "agrees",
        "unknown": "agrees natively" if reason else "not run yet",
        "tool": "not made",
        "onnxruntime": "onnxruntime does not run it",
        "here": "differs",
    }[row.stage]
    return f"{said}: {reason}" if reason else said


def _open(row: Row) -> str:
    if row.case.model.runs < 2 or "browser_open" not in row.found:
        return ""
    plans = row.found["browser_open"]
    if any(plans):
        return "one plan" if len(plans) == 1 else "one plan after the first"
    return "a plan for each size"


def main() -> int:
    args = arguments(__doc__).parse_args()
    table, listed = rows(args.names), failures()
    if not args.names:
        PAGE.write_text(render(table, listed))
    wrong = verdict(table, listed)
    print(wrong or f"{len(table)} files: all as listed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
