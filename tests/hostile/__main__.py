"""Fuzz one target: `python -m tests.hostile TARGET --seconds N [--corpus FOLDER] [--crashes FOLDER]`.

Exits with 0 where nothing was found. What is found is written to the folder of crashes; to see it again:
`python -m tests.hostile TARGET FILE`.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("target", choices=["reader", "load"])
    parser.add_argument("again", nargs="?", type=Path, help="a file that was found before")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--corpus", type=Path, help="kept between runs; default: the seeds, in one order")
    parser.add_argument("--crashes", type=Path, default=Path("crashes"))
    args = parser.parse_args()

    import atheris

    with atheris.instrument_imports(include=[f"pyruntime.{p}" for p in ("onnx", "compiler", "session", "ops")]):
        from tests.hostile.targets import TARGETS, seeds

    target = TARGETS[args.target]
    if args.again:
        target(args.again.read_bytes())
        return
    with tempfile.TemporaryDirectory() as scratch:
        corpus = args.corpus or Path(scratch)
        corpus.mkdir(parents=True, exist_ok=True)
        args.crashes.mkdir(parents=True, exist_ok=True)
        for data in seeds():
            (corpus / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
        flags = [
            f"-max_total_time={args.seconds}",
            f"-artifact_prefix={args.crashes}/{args.target}-",
            "-max_len=8192",
            "-timeout=10",
            "-rss_limit_mb=3000",
            "-print_final_stats=1",
            "-verbosity=0",
            *(["-seed=1"] if args.corpus is None else []),
        ]
        atheris.Setup([sys.argv[0], *flags, str(corpus)], target)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
