"""Export the zoo: python -m tools.zoo.export [--source S] [--again] [NAME ...]. Needs torch.

Each model is built and exported in a separate process; existing exports are kept. The results are NAME.onnx, NAME.npz
(inputs '0/name' of the export's sizes, '1/name' of others) and NAME.json: exporter and opset, or the error.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import tempfile
import time
import traceback
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tools.zoo.apart import in_process
from tools.zoo.builders import Flat, build, feeds, prepare_torchvision
from tools.zoo.check import session_of
from tools.zoo.definitions import Attempt, Definition, arguments, definitions

SECONDS = 120
"""For one attempt."""


def export(definition: Definition, attempt: Attempt) -> dict[str, Any]:
    """Write the model and its inputs; return the export report."""
    began = time.monotonic()
    model = build(definition, eager=attempt.exporter == "old")
    vocabulary = int(getattr(getattr(model, "config", None), "vocab_size", 0) or 96)
    runs = [feeds(definition, run, min(vocabulary, 96)) for run in (0, 1)]
    names = list(definition.inputs)
    flat = Flat(model, names)
    with torch.no_grad():
        outputs = flat(*runs[0].values())
    if not outputs:
        raise ValueError("the model returned no tensor")
    axes = {n: definition.axes(n) for n in names} if attempt.dynamic else {}
    definition.path.parent.mkdir(parents=True, exist_ok=True)
    args = tuple(runs[0].values())
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if attempt.exporter == "new":
            auto = torch.export.Dim.AUTO
            shapes = tuple(dict.fromkeys(axes.get(n, {}), auto) for n in names)
            torch.onnx.export(
                flat,
                args,
                str(definition.path),
                dynamo=True,
                opset_version=attempt.opset,
                input_names=names,
                dynamic_shapes=(shapes,) if attempt.dynamic else None,
                external_data=False,
                verbose=False,
            )
        else:
            torch.onnx.export(
                flat,
                args,
                str(definition.path),
                dynamo=False,
                opset_version=attempt.opset,
                input_names=names,
                dynamic_axes=axes or None,
            )
    accepted(definition, {n: v.numpy() for n, v in runs[0].items()})
    arrays = {f"{run}/{n}": v.numpy() for run, given in enumerate(runs) for n, v in given.items()}
    np.savez(definition.path.with_suffix(".npz"), **arrays)
    return {
        "exporter": attempt.exporter,
        "opset": attempt.opset,
        "dynamic": attempt.dynamic,
        "bytes": definition.path.stat().st_size,
        "seconds": round(time.monotonic() - began, 1),
    }


def accepted(definition: Definition, given: dict[str, Any]) -> None:
    """Run the file in onnxruntime, since the old exporter writes some invalid models.

    Raises:
        ValueError: onnxruntime cannot run the file.
    """
    try:
        session = session_of(definition.path)
        session.run(None, {i.name: given[i.name] for i in session.get_inputs()})
    except Exception as error:  # boundary: onnxruntime refuses it
        raise ValueError(f"onnxruntime does not run it: {error}") from error


def apart(definition: Definition, attempt: Attempt) -> dict[str, Any]:
    """Run `export` in a separate process; return {'error'} if it fails, crashes or takes too long."""

    def failed(error: BaseException) -> dict[str, Any]:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(last.filename)}:{last.lineno}"
        return {"error": f"{type(error).__name__}: {error}"[:600], "where": where}

    return in_process(lambda: export(definition, attempt), failed, lambda how: {"error": f"ended {how}"}, SECONDS)


def one(definition: Definition) -> dict[str, Any]:
    """Try the ways to export until one succeeds."""
    failures: dict[str, Any] = {}
    for attempt in definition.attempts():
        told = apart(definition, attempt)
        if "error" not in told:
            return {**told, "failures": failures}
        failures[f"{attempt.exporter} {attempt.opset} {'open' if attempt.dynamic else 'fixed'}"] = told
        if "torch/onnx" not in told.get("where", "") and told.get("where", "").startswith(("configuration", "auto_")):
            break
    definition.path.unlink(missing_ok=True)
    return {"error": next(iter(failures.values()))["error"], "failures": failures}


def warm() -> None:
    """Import the exporters' modules before forking, so that the processes of the models share them."""
    prepare_torchvision()
    import transformers.modeling_utils
    import transformers.models.auto.modeling_auto  # noqa: F401

    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()).eval()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for new in (True, False):
            given = {"dynamic_shapes": ({0: torch.export.Dim.AUTO},)} if new else {"dynamic_axes": {"x": {0: "b"}}}
            path = str(Path(folder) / "net.onnx")
            torch.onnx.export(net, (torch.zeros(2, 4),), path, dynamo=new, input_names=["x"], verbose=False, **given)
    gc.collect()
    gc.freeze()


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--again", action="store_true", help="also what was exported, or tried, before")
    parser.add_argument("--failed", action="store_true", help="also what failed before")
    parser.add_argument("--exporter", choices=("new", "old"), default="", help="those that are tried with it first")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warm()
    for definition in sorted(definitions(args.source, args.names), key=lambda d: zlib.crc32(d.name[::-1].encode())):
        told = definition.path.with_suffix(".json")
        if args.exporter and definition.attempts()[0].exporter != args.exporter:
            continue
        if told.is_file() and not args.again and not (args.failed and "error" in json.loads(told.read_text())):
            continue
        told.parent.mkdir(parents=True, exist_ok=True)
        result = one(definition)
        told.write_text(json.dumps(result))
        state = result.get("error", "")[:150].replace("\n", " ") or f"{result['exporter']} {result['opset']}"
        print(f"{definition.source} {definition.name}: {state} {result.get('seconds', '')}", flush=True)


if __name__ == "__main__":
    main()
