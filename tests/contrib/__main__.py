"""`python -m tests.contrib [--cases 12] [--seed N] [--browser]`: random com.microsoft nodes, as many as wanted.

Natively each runs on NumPy and as planning and passes leave it, some in the other float types. With --browser each runs
on the GPU alone, what `lower` gives, every other with the kernels of software adapters, some in float16.
"""

from __future__ import annotations

import argparse
import copy
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.contrib.case import Case, check, check_graph, draws
from tests.contrib.float_types import TYPES
from tests.contrib.samples import failures

TYPED = 1000
"""The first number of samples in other float types."""


def natively(case: Case, number: int) -> None:
    """On NumPy, alone and as a graph that was optimised."""
    check(case)
    if number < TYPED:
        check_graph(case, constant=number % 2 == 0)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.contrib", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("--cases", type=int, default=12, help="of each operator (default 12)")
    parser.add_argument("--seed", type=int, default=None, help="default: another each time")
    parser.add_argument("--only", nargs="*", default=list(draws()), choices=list(draws()), metavar="OPERATOR")
    parser.add_argument("--browser", action="store_true", help="on the GPU of headless Chromium")
    args = parser.parse_args(argv)
    seed = random.randrange(1 << 31) if args.seed is None else args.seed
    test, close = on_gpu() if args.browser else (natively, lambda: None)
    kinds = ["tensor(float16)"] if args.browser else list(TYPES)
    count = failed = 0
    print(f"seed {seed}", flush=True)
    for op_type in args.only:
        made: list[Case] = []

        def counted(case: Case, number: int, made: list[Case] = made) -> None:
            made.append(case)
            test(case, number)

        found = list(failures(op_type, seed, range(args.cases), counted))
        for kind in kinds:
            found += failures(op_type, seed, range(TYPED, TYPED + max(1, args.cases // 4)), counted, kind)
        for told, error in found:
            print(f"{told}\n  {' '.join(str(error).split())[:400]}")
        hosts = sum(case.host for case in made)
        note = f", {hosts} of them refused as they have no kernel" if hosts and args.browser else ""
        print(f"{op_type}: {len(made)} cases, {len(found)} failures{note}", flush=True)
        count, failed = count + len(made), failed + len(found)
    close()
    print(f"{count} cases of {len(args.only)} operators, {failed} failures")
    return int(failed > 0)


def on_gpu() -> tuple[Callable[[Case, int], None], Callable[[], None]]:
    """A test of a case on the GPU, and what ends the browser."""
    from e2e.harness.gpu import Gpu

    gpu: Any = Gpu()
    software = copy.copy(gpu)
    software.target = replace(gpu.target, vendor="google")

    def test(case: Case, number: int) -> None:
        check(case, software if number % 2 else gpu)

    return test, gpu.close


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
