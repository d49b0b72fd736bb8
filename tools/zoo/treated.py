"""Check treated models natively: python -m tools.zoo.treated [--source S] [--treatment T] [--share PERCENT] [NAME ...].

Needs torch, and the models that `tools.zoo.export` wrote. Each matching treatment of treatments.py is applied and
compared in a separate process. The reference is onnxruntime's CPU provider on the treated file, with or without
optimizations (it fuses quantized chains into operators that round elsewhere), or the float32 file if it has no kernels.
treated.toml is the strict list of known failures. Results are cached in .cache/zoo/treated.
"""

from __future__ import annotations

import json
import os
import sys
import time
import tomllib
import traceback
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from pyruntime.ops.interpreter import interpret
from tools.zoo.apart import in_process
from tools.zoo.check import Feeds, graph_of, host, inputs_of, planned, session_of
from tools.zoo.compare import HALF, apart, complaint
from tools.zoo.definitions import CACHE, Definition, arguments, definitions
from tools.zoo.treatments import Exported, Treatment, chosen

__all__ = ["check", "compared", "main", "outputs_of"]

SECONDS = 240
"""For one treatment and what is compared of it."""

LISTED = Path(__file__).parent / "treated.toml"


def fed(declared: Mapping[str, np.dtype[Any]], feeds: Feeds) -> Feeds:
    """Return the feeds for the treated model: converted to its types, and with the condition of a branch."""
    made = {n: feeds[n].astype(kind) for n, kind in declared.items() if n in feeds}
    if "use_cache_branch" in declared:
        made["use_cache_branch"] = np.array([feeds[min(feeds)].shape[0] % 2 == 0])
    return made


def outputs_of(path: Path, runs: Sequence[Feeds], optimise: bool) -> tuple[list[list[Any]] | None, str]:
    """Run onnxruntime; return its outputs for each run, or None and the error."""
    try:
        session = session_of(path, optimise)
        return [session.run(None, feeds) for feeds in runs], ""
    except Exception as error:  # noqa: BLE001  # boundary: reported in the table
        return None, f"{type(error).__name__}: {error}"[:300]


def check(definition: Definition, treatment: Treatment, folder: Path) -> dict[str, Any]:
    """Return all results for a model under a treatment."""
    runs = inputs_of(definition.path.with_suffix(".npz"))
    target = folder / f"{treatment.name}.onnx"
    try:
        treatment.run(Exported(definition.path, runs), target)
    except Exception as error:  # noqa: BLE001  # boundary: reported in the table
        return {"tool": f"{type(error).__name__}: {error}"[:300]}
    kinds = {v.name: np.dtype(onnx.helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type))
             for v in onnx.load(target, load_external_data=False).graph.input}  # fmt: skip
    plain, why = outputs_of(definition.path, runs[:1], True)
    if plain is None:
        return {"tool": f"onnxruntime does not run the plain file: {why}"}
    if (second := outputs_of(definition.path, runs, True)[0]) is not None:
        plain = second
    runs = [fed(kinds, feeds) for feeds in runs[: len(plain)]]
    witnesses: list[list[list[Any]]] = []
    for optimise in (True, False):
        made, why = outputs_of(target, runs, optimise)
        if made is None and len(runs) > 1:
            made, why = outputs_of(target, runs[:1], optimise)
        if made is not None:
            witnesses.append(made)
    result: dict[str, Any] = {"onnxruntime": "" if witnesses else why, "native": "", "plan": ""}
    if witnesses:
        runs = runs[: max(len(w) for w in witnesses)]
    try:
        graph = graph_of(target)
    except Exception as error:  # noqa: BLE001  # boundary: reported in the table
        return {**result, "import" if witnesses else "refused": f"{type(error).__name__}: {error}"[:800]}
    names = [v.name for v in graph.outputs]
    began = time.monotonic()
    try:
        mine = [_interpreted(graph, feeds, names) for feeds in runs]
        result |= compared(treatment.kind, mine, witnesses, plain, names)
    except Exception as error:  # noqa: BLE001  # boundary: reported in the table
        result["native"] = f"{type(error).__name__}: {error}"[:800]
    result["native_seconds"] = round(time.monotonic() - began, 1)
    try:
        result |= planned(target, runs)
    except Exception as error:  # noqa: BLE001  # boundary: reported in the table
        result["plan"] = f"{type(error).__name__}: {error}"[:800]
    if result["native"] and not witnesses and "far" not in result:  # the file is invalid, this project is correct
        return {"onnxruntime": why, "refused": result["native"]}
    return result


def _interpreted(graph: Any, feeds: Feeds, names: Sequence[str]) -> list[Any]:
    made = interpret(graph, {n: host(x).known(n) for n, x in feeds.items()})
    return [made[n].value() for n in names]


def compared(
    kind: str,
    mine: Sequence[list[Any]],
    witnesses: Sequence[Sequence[list[Any]]],
    plain: Sequence[list[Any]],
    names: Sequence[str],
) -> dict[str, Any]:
    """Return the difference of `mine` to the nearest witness or '', and its size relative to the treatment's effect."""
    told, far = "", 0.0
    for number, outputs in enumerate(mine):
        complaints = [complaint(outputs, w[number], names) for w in witnesses if number < len(w)]
        if not all(complaints) or (not complaints and not complaint(outputs, plain[number], names)):
            continue
        if kind == "same" and complaints:
            return {"native": complaints[0], "far": 1e9}
        others = [w[number] for w in witnesses if number < len(w)]
        # Without onnxruntime's kernels, rounded results can only be compared with the float32 model.
        part = HALF if kind == "half" else 0.0 if others else 0.2
        wrong, distance = apart(outputs, others or [plain[number]], plain[number], names, part)
        told, far = told or wrong, max(far, distance)
    return {"native": told, "far": round(far, 3)}


def separately(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run `work` in a separate process; return {'import'} if it fails, {'ended'} if it crashes or takes too long."""

    def failed(error: BaseException) -> dict[str, Any]:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return {"import": f"{type(error).__name__}: {error} ({os.path.basename(last.filename)})"[:800]}

    return in_process(work, failed, lambda how: {"ended": how}, SECONDS)


def wrong_of(found: Mapping[str, Any]) -> str:
    """Describe the differences in this project."""
    return "; ".join(f"{key}: {found[key]}" for key in ("import", "native", "plan", "ended") if found.get(key))


def listed() -> dict[str, str]:
    """Return the reason of each known failure, by 'source/model treatment'."""
    entries = tomllib.loads(LISTED.read_text()).get("failures", [])
    return {f"{model} {t}": e["reason"] for e in entries for model in e["models"] for t in e["treatments"]}


def shared(definition: Definition, treatment: Treatment, percent: int) -> bool:
    """Return whether the pair is in the sample that is run; deterministic."""
    return zlib.crc32(f"{definition.name} {treatment.name}".encode()) % 100 < percent


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--treatment", action="append", default=[], help="names or patterns; default: all")
    parser.add_argument("--share", type=int, default=100, help="per cent of the pairs of model and treatment")
    parser.add_argument("--again", action="store_true", help="also what was checked before")
    args = parser.parse_args()
    os.environ["PYRUNTIME_VERIFY"] = "1"
    warnings.simplefilter("ignore")
    import onnxruntime.quantization
    import onnxruntime.transformers.optimizer  # noqa: F401  before the processes

    expected, wrong = listed(), 0
    for definition in definitions(args.source, args.names):
        if not definition.path.is_file():
            continue
        folder = CACHE / "treated" / definition.source / definition.name
        folder.mkdir(parents=True, exist_ok=True)
        for treatment in chosen(definition.name, args.treatment):
            done = folder / f"{treatment.name}.json"
            if not shared(definition, treatment, args.share) or (done.is_file() and not args.again):
                continue
            found = separately(lambda: check(definition, treatment, folder))  # noqa: B023
            done.write_text(json.dumps(found))
            for path in folder.glob(f"{treatment.name}.*"):
                if path.suffix != ".json":
                    path.unlink()
            key = f"{definition.source}/{definition.name} {treatment.name}"
            if bool(wrong_of(found)) != (key in expected):
                wrong += 1
            print(f"{key}: {line(found)}", flush=True)
    return 1 if wrong else 0


def line(found: Mapping[str, Any]) -> str:
    """Format a result as one line."""
    if found.get("tool"):
        return f"not made: {found['tool']}"[:200].replace("\n", " ")
    if found.get("refused"):
        return f"neither runs it: {found['onnxruntime'][:100]!r}, {found['refused'][:200]}"
    if told := wrong_of(found):
        return "WRONG " + told
    state = f"{found.get('dispatches')} dispatches" + (f", far {found['far']}" if found.get("far") else "")
    state += f", onnxruntime: {found['onnxruntime'][:80]!r}" if found.get("onnxruntime") else ""
    for key in ("host", "waits"):
        state += f", {key} {found[key]}" if found.get(key) else ""
    return state


if __name__ == "__main__":
    sys.exit(main())
