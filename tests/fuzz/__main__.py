"""`python -m tests.fuzz --minutes 10 --seed 1`: random samples on NumPy, as plans that are proved, and on the GPU.

The GPU is headless Chromium's. Plans are made of graphs where fusion and the reuse of memory meet, thousands a minute.
"""

from __future__ import annotations

import argparse
import sys

from e2e.conformance.__main__ import browser_python
from e2e.fuzz.browser import checker
from tests.fuzz.build import Sample
from tests.fuzz.campaign import campaign
from tests.fuzz.families import FAMILIES, PLANNED
from tests.fuzz.oracle import judge, native_complaint
from tests.fuzz.plans import plan_campaign


def natively(drawn: list[Sample]) -> str:
    """What is wrong with the samples on NumPy, or nothing."""
    return next(filter(None, (native_complaint(judge(sample)) for sample in drawn)), "")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="dev.py fuzz", description="Random operators against onnxruntime.")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0, help="the same number gives the same samples")
    parser.add_argument("--only", nargs="*", choices=list(FAMILIES), default=list(FAMILIES), help="families")
    alone = parser.add_mutually_exclusive_group()
    alone.add_argument("--native", action="store_true", help="NumPy alone")
    alone.add_argument("--plans", action="store_true", help="plans alone")
    alone.add_argument("--browser", action="store_true", help="the GPU alone")
    args = parser.parse_args(argv)
    seconds, failed, all_three = 60 * args.minutes, False, not (args.native or args.plans or args.browser)
    if args.native or all_three:
        share = 1.0 if args.native else 0.2
        checked, failures = campaign(natively, share * seconds, args.seed, args.only)
        print(f"NumPy: {checked} samples, {len(failures)} failures")
        failed = bool(failures)
    if args.plans or all_three:
        share = 1.0 if args.plans else 0.2
        checked, failures = plan_campaign(PLANNED, args.seed, share * seconds)
        print(f"plans: {checked} samples, {len(failures)} failures")
        failed |= bool(failures)
    if args.browser or all_three:
        share = 1.0 if args.browser else 0.6
        with browser_python() as python:
            checked, failures = campaign(checker(python), share * seconds, args.seed, args.only, batch=10, examples=10)
        print(f"GPU: {checked} samples, {len(failures)} failures")
        failed |= bool(failures)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
