"""What onnxruntime's CPU writes, greedily, in folders of bench/decoders.py: page/decode.js compares with it.

    python bench/expected.py FOLDER... [--prompt 128] [--tokens 64]

writes expected.json into each folder. A stripped one gets the tokens of the weights that bench/refill.py will put in,
which are the same on every machine. Runs in the project's own environment.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

import onnxruntime

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.refill import refill
from tests.genai.greedy import greedy
from tests.genai.packed import Shape, prompt_of


def tokens_of(folder: Path, prompt: int, tokens: int) -> tuple[list[int], float]:
    """The ids after a prompt of `prompt` tokens, and the least margin between a chosen token and the next best one."""
    model = json.loads((folder / "genai_config.json").read_text())["model"]
    decoder, words = model["decoder"], model["vocab_size"]
    heads, groups, size = (decoder[name] for name in ("num_attention_heads", "num_key_value_heads", "head_size"))
    shape = Shape(decoder["num_hidden_layers"], heads, groups, size, 0, words, bias=False, tied=False)
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    return greedy(session, shape, prompt_of(prompt, words), tokens)


def write(folder: Path, prompt: int, tokens: int) -> None:
    """Write expected.json into `folder`."""
    stripped = folder / "model.onnx.data.stripped"
    with tempfile.TemporaryDirectory() as scratch:
        whole = folder
        if stripped.is_file():
            whole = Path(scratch)
            for name in ("model.onnx", "genai_config.json"):
                shutil.copyfile(folder / name, whole / name)
            refill(stripped, whole / "model.onnx.data")
        ids, margin = tokens_of(whole, prompt, tokens)
    (folder / "expected.json").write_text(json.dumps({"prompt": prompt, "ids": ids, "margin": margin}))
    print(f"{folder.name}: {len(set(ids))} different tokens of {len(ids)}, the closest won by {margin:.2g}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=64)
    args = parser.parse_args()
    for folder in args.folders:
        write(folder, args.prompt, args.tokens)


if __name__ == "__main__":
    main()
