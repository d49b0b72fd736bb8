"""Trains the page's language model and writes `models/austen/`, a folder in transformers.js' layout.

    python -m venv .venv-train && .venv-train/bin/pip install torch==2.13.0 tokenizers==0.23.3 onnx onnxruntime
    apt-get download r-cran-janeaustenr && dpkg -x r-cran-janeaustenr_*.deb novels
    .venv-train/bin/python -m tools.writer novels    # under an hour on one core

A Llama-style decoder with 4.7 million weights, 4 bits in the layers (block 32) and 8 bits in the embedding table,
trained on the six novels of Jane Austen, with a twelfth of the chapters held out. Seeds are fixed.

Result of models/austen/ (torch 2.13): 3.86 nats a token on held-out chapters, 3.5 on training chapters. Its schedule
was shortened during training; `Course` has the shortened one, which was not run again from the start.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from tools.writer.check import PROMPTS, continuation, differ
from tools.writer.export import write
from tools.writer.network import Shape
from tools.writer.text import read
from tools.writer.train import Course, held_out_loss, new_network, split, tokens, train, train_tokenizer

OUTPUT = Path(__file__).resolve().parents[2] / "models" / "austen"
SIZE_LIMIT = 4_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("novels", type=Path, help="the unpacked package r-cran-janeaustenr")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--checkpoint", type=Path, help="weights: written after training; if there, not trained again")
    parser.add_argument("--steps", type=int, default=Course.steps, help="fewer, to try it")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    trained_on, held_out = split(read(arguments.novels))
    shape, course = Shape(), Course(arguments.steps)
    tokenizer = train_tokenizer(trained_on, shape.vocab_size)
    network = new_network(shape)
    unseen = tokens(tokenizer, held_out)
    if arguments.checkpoint and arguments.checkpoint.exists():
        network.load_state_dict(torch.load(arguments.checkpoint))
        network.coarsen()
    else:
        train(network, tokens(tokenizer, trained_on), unseen, course)
        if arguments.checkpoint:
            torch.save(network.state_dict(), arguments.checkpoint)
    network.eval()
    print(f"held out: {held_out_loss(network, unseen, course):.3f}")
    size = write(network, tokenizer, arguments.output)
    if size >= SIZE_LIMIT:
        raise SystemExit(f"the folder has {size} bytes, the limit is {SIZE_LIMIT}")
    print(f"{arguments.output}: {size} bytes, logits differ by {differ(network, arguments.output):.2g}")
    for prompt in PROMPTS:
        print(continuation(arguments.output, shape, prompt), end="\n\n")


if __name__ == "__main__":
    main()
