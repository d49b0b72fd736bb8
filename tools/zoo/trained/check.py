"""Check trained models natively: python -m tools.zoo.trained.check [NAME ...].

A name is a package or a pattern of PACKAGE/MODEL[+TREATMENT]. For each step of each run onnxruntime's CPU provider
gives references, with and without optimizations. The NumPy interpreter, with its states fed back, is compared with
them; plans are made for a GPU and checked by the verifier. A file that rounds activations may differ as a whole; then
it is cut (cut.py), and all parts have to agree. Results of the current version are reused. Each model runs in a
separate process.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pyruntime.ops.interpreter import interpret
from tools.devkit.shell import ROOT, fingerprint
from tools.zoo.apart import in_process
from tools.zoo.check import Feeds, graph_of, host, planned, session_of
from tools.zoo.compare import HALF, RELATIVE
from tools.zoo.trained.compare import complaint_of, difference, spread_of
from tools.zoo.trained.cut import cut, pieces, rounds
from tools.zoo.trained.fetch import fetched, model_file
from tools.zoo.trained.files import KIND, case_file
from tools.zoo.trained.packages import FOLDER, Case, cases
from tools.zoo.trained.recipes import steps_of
from tools.zoo.trained.transfer import plain
from tools.zoo.treated import compared

__all__ = ["check", "commit", "in_parts", "judged", "main", "product", "put", "recorded", "wrong_of"]

SECONDS, LARGE = 600, 1800
"""For one file, and for a large one."""


def product() -> str:
    """Return a fingerprint of the current version of the product."""
    return fingerprint(ROOT / "pyruntime", ROOT / "shaders", ROOT / "web")[:16]


def commit() -> str:
    """Return the last commit of the product, with a plus sign if files were modified."""
    git, folders = ["git", "-C", str(ROOT)], ["--", "pyruntime", "shaders", "web"]
    last = subprocess.run([*git, "log", "-1", "--format=%h", *folders], capture_output=True, text=True).stdout.strip()
    changed = subprocess.run([*git, "status", "--porcelain", *folders], capture_output=True, text=True).stdout
    return last + ("+" if changed else "")


def given(session: Any, runs: Sequence[Sequence[Feeds]]) -> list[list[Feeds]]:
    """Return the feeds that the session declares, in the declared types."""
    types = {"float": "float32", "double": "float64"}
    kinds = {i.name: i.type.removeprefix("tensor(").removesuffix(")") for i in session.get_inputs()}
    return [
        [{n: np.asarray(step[n]).astype(types.get(kind, kind)) for n, kind in kinds.items()} for step in run]
        for run in runs
    ]


def answers(
    step_of: Callable[[Feeds], Sequence[Any]], names: Sequence[str], runs: Sequence[Sequence[Feeds]], case: Case
) -> list[list[list[Any]]]:
    """Return outputs (`names`) of every step of every run, with states fed back."""
    made = []
    for run in runs:
        outputs: list[Sequence[Any]] = []
        for step in run:
            last = dict(zip(names, outputs[-1], strict=True)) if outputs else {}
            outputs.append(step_of(step | {i: last[o] for i, o in case.model.back.items() if last}))
        made.append([[plain(y) for y in ys] for ys in outputs])
    return made


def theirs(session: Any, runs: Sequence[Sequence[Feeds]], case: Case) -> list[list[list[Any]]]:
    """Return `answers` of onnxruntime."""
    return answers(lambda feeds: session.run(None, feeds), [o.name for o in session.get_outputs()], runs, case)


def interpreted(path: Path, runs: Sequence[Sequence[Feeds]], case: Case) -> list[list[list[Any]]]:
    """Return `answers` of the NumPy interpreter."""
    graph = graph_of(path)
    names = [v.name for v in graph.outputs]

    def step_of(feeds: Feeds) -> list[Any]:
        told = interpret(graph, {n: host(x).known(n) for n, x in feeds.items()})
        return [told[n].value() for n in names]

    return answers(step_of, names, runs, case)


def recorded(case: Case) -> tuple[list[list[Feeds]], list[list[list[list[Any]]]], list[list[list[Any]]], list[str]]:
    """Read what `record` wrote: feeds, outputs of each witness, outputs of the shipped file, and output names."""
    with np.load(case.result.with_suffix(".npz")) as arrays:
        names = [str(n) for n in arrays["names"]]
        count = [int(n) for n in arrays["steps"]]
        feeds: list[list[Feeds]] = [[{} for _ in range(n)] for n in count]
        for key in arrays.files:
            if key.startswith("in/"):
                _, run, step, name = key.split("/", 3)
                feeds[int(run)][int(step)][name] = arrays[key]

        def outputs(kind: str) -> list[list[list[Any]]]:
            return [
                [[arrays[f"{kind}/{r}/{s}/{i}"] for i in range(len(names))] for s in range(n)]
                for r, n in enumerate(count)
            ]

        return feeds, [outputs(f"w{i}") for i in range(int(arrays["witnesses"]))], outputs("shipped"), names


def record(
    case: Case, feeds: Sequence[Sequence[Feeds]], made: Mapping[str, list[list[list[Any]]]], names: Sequence[str]
) -> None:
    """Write results for `recorded`."""
    arrays: dict[str, Any] = {"names": list(names), "steps": [len(run) for run in feeds], "witnesses": len(made) - 1}
    for r, run in enumerate(feeds):
        for s, step in enumerate(run):
            arrays |= {f"in/{r}/{s}/{n}": x for n, x in step.items()}
            arrays |= {f"{kind}/{r}/{s}/{i}": y for kind, all_ in made.items() for i, y in enumerate(all_[r][s])}
    np.savez(case.result.with_suffix(".npz"), **arrays)


def judged(
    case: Case,
    mine: Sequence[Sequence[list[Any]]],
    witnesses: Sequence[Sequence[Sequence[list[Any]]]],
    shipped: Sequence[Sequence[list[Any]]],
    names: Sequence[str],
) -> tuple[str, float]:
    """Return the error of the outputs or '', and the largest difference."""
    spread, part = spread_of(witnesses), HALF if case.model.half else RELATIVE
    wrong, far = "", 0.0
    for r, run in enumerate(mine):
        for s, outputs in enumerate(run):
            theirs = [w[r][s] for w in witnesses]
            far = max(far, difference(outputs, theirs))
            if KIND[case.treatment] == "same":
                told = complaint_of(outputs, theirs, names, spread, part)
            else:
                found = compared(KIND[case.treatment], [outputs], [[w] for w in theirs], [shipped[r][s]], names)
                told = found["native"]
            wrong = wrong or (told and f"size {r + 1}, step {s + 1}: {told}")
    return wrong, far


def in_parts(
    case: Case, path: Path, feeds: Sequence[Sequence[Feeds]], limit: float = math.inf
) -> Iterator[tuple[Path, Feeds, dict[str, Any]]]:
    """Cut the file where it rounds, for the first step of the last size; return its path, feeds and outputs by name.

    If they take more than `limit` bytes, the cut file is returned in pieces.
    """
    whole = cut(path, feeds[-1][0], lambda model: session_of(model, False))
    for number, (data, fed, wanted) in enumerate(pieces(whole, limit)):
        target = FOLDER / "cut" / f"{case.key}.{number}.onnx"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        yield target, fed, wanted


def check(case: Case) -> dict[str, Any]:
    """Return all native results for a case."""
    result: dict[str, Any] = {"tool": "", "onnxruntime": "", "native": "", "plan": ""}
    runs = [steps_of(case.model, run) for run in range(case.model.runs)]
    try:
        path = case_file(case, [step for run in runs for step in run])
    except Exception as error:  # noqa: BLE001  # boundary: a third-party tool
        return result | {"tool": f"{type(error).__name__}: {error}"[:400]}
    result |= {"path": str(path), "bytes": path.stat().st_size}
    made: dict[str, list[list[list[Any]]]] = {}
    for optimise in (True, False):
        try:
            session = session_of(path, optimise)
            feeds = given(session, runs)
            made[f"w{len(made)}"] = theirs(session, feeds, case)
        except Exception as error:  # noqa: BLE001  # boundary: onnxruntime
            result["onnxruntime"] = f"{type(error).__name__}: {error}"[:400]
    if not made:
        return result
    result["onnxruntime"] = ""
    names = [o.name for o in session.get_outputs()]
    witnesses = list(made.values())
    if case.treatment:
        session = session_of(model_file(case.model), True)
        made["shipped"] = theirs(session, given(session, runs), case)
    else:
        made["shipped"] = witnesses[0]
    record(case, feeds, made, names)
    began = time.monotonic()
    try:
        mine = interpreted(path, feeds, case)
        result["native"], result["native_far"] = judged(case, mine, witnesses, made["shipped"], names)
        if result["native"] and path.suffix == ".onnx" and rounds(path):
            ((parts, fed, wanted),) = in_parts(case, path, feeds)
            ((mine_,),) = interpreted(parts, [[fed]], case)
            told = judged(Case(case.model), [[mine_]], [[[list(wanted.values())]]], [], list(wanted))
            result["native"], result["native_parts"] = told
    except Exception as error:  # noqa: BLE001  # boundary: a model of a survey
        result["native"] = f"{type(error).__name__}: {error}"[:800]
    result["native_seconds"] = round(time.monotonic() - began, 1)
    if not case.model.large:
        try:
            result |= planned(path, [run[0] for run in feeds])
        except Exception as error:  # noqa: BLE001  # boundary: a model of a survey
            result["plan"] = f"{type(error).__name__}: {error}"[:800]
    return result


def put(case: Case, found: Mapping[str, Any], program: str) -> None:
    """Write the results of one program and keep those of the other; keys of the browser's start with 'browser'."""
    known = json.loads(case.result.read_text()) if case.result.is_file() else {}
    kept = {key: x for key, x in known.items() if key.startswith("browser") != (program == "browser")}
    case.result.write_text(json.dumps({**kept, **found}))


def wrong_of(found: Mapping[str, Any]) -> str:
    """Describe the differences in this project."""
    return "; ".join(f"{key}: {found[key]}" for key in ("ended", "native", "plan", "browser") if found.get(key))


def line(found: Mapping[str, Any]) -> str:
    """Format a native result as one line."""
    for key in ("tool", "onnxruntime"):
        if found.get(key):
            return f"{key} fails: {found[key][:300]}"
    if told := wrong_of({k: v for k, v in found.items() if k != "browser"}):
        return "WRONG " + told
    state = f"{found.get('dispatches', '-')} dispatches, {found['native_seconds']} s"
    for key in ("host", "waits", "closed"):
        state += f", {key} {found[key]}" if found.get(key) else ""
    return state


def selected(names: Sequence[str]) -> list[Case]:
    """Return the cases of these packages or patterns; without names, all."""
    wanted = [name for name in names if "+" not in name]
    found = list(cases(wanted)) if wanted or not names else []
    keys = {case.key for case in found}
    return found + [c for c in cases() if c.key in names and c.key not in keys]


def arguments(text: str | None) -> argparse.ArgumentParser:
    """Return the argument parser of check and browser."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=())
    parser.add_argument("--again", action="store_true", help="also what is known of this state of the product")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no other file after this time")
    return parser


def main() -> int:
    args = arguments(__doc__).parse_args()
    os.environ["PYRUNTIME_VERIFY"] = "1"
    warnings.simplefilter("ignore")
    import onnxruntime.quantization  # before the processes
    import onnxruntime.transformers.float16  # noqa: F401

    now, end, wrong = product(), time.monotonic() + args.minutes * 60, 0
    for case in selected(args.names):
        known = json.loads(case.result.read_text()) if case.result.is_file() else {}
        if known.get("product") == now and not args.again:
            continue
        if time.monotonic() > end:
            print("time is over: run this again for the others")
            break
        fetched(case.model)
        case.result.parent.mkdir(parents=True, exist_ok=True)
        found = in_process(
            lambda: check(case),  # noqa: B023
            lambda error: {"native": f"{type(error).__name__}: {error}"[:800]},
            lambda how: {"ended": how},
            LARGE if case.model.large else SECONDS,
        )
        put(case, {**found, "product": now, "commit": commit()}, "native")
        wrong += bool(wrong_of(found))
        print(f"{case.key}: {line(found)}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
