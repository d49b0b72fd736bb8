#!/usr/bin/env python3
"""Everything a developer runs: `python3 dev.py demo`, `test`, `build`, `serve`, `bench`, `lint`,
`notebook`, `nightly`, `fuzz`, `soak`, `zoo`, `tune`.

Needs Python 3.11+, npm, and nothing else: each command first makes what it needs (a virtual environment in
`.venv`, Pyodide and npm packages in `.cache`, a Chromium) and leaves a stamp, so that a second run starts at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit(f"dev.py needs Python 3.11 or newer; this is {sys.version.split()[0]} ({sys.executable}).")

from tools.devkit import commands, endurance, notebook, zoo
from tools.devkit.shell import SetupError


def parse_args(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="dev.py", description=(__doc__ or "").split("\n\n")[1])
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = subparsers.add_parser("demo", help="run the digits model in headless Chromium, then serve the page")
    demo.add_argument("--once", action="store_true", help="end after the run")
    demo.add_argument("--port", type=int, default=8000, help="port of the page (default 8000, else a free one)")

    test = subparsers.add_parser("test", help="the core tests (10 minutes on two cores); or what pytest is given")
    length = test.add_mutually_exclusive_group()
    length.add_argument("--all", action="store_const", const="all", dest="chosen", help="every test")
    length.add_argument(
        "--ci",
        action="store_const",
        const="ci",
        dest="chosen",
        help="every native test, 900 of the browser, and a part of tests/mutations",
    )
    part = test.add_mutually_exclusive_group()
    part.add_argument("--native", action="store_true", help="only tests/, without a browser")
    part.add_argument("--browser", action="store_true", help="only e2e/, in headless Chromium")

    subparsers.add_parser("nightly", help="what CI has no time for: every test, and half an hour of soak")

    subparsers.add_parser("build", help="write the self-contained static site to dist/, and its documentation")

    subparsers.add_parser("docs", help="write the documentation to dist/docs/")

    package = subparsers.add_parser("package", help="write wheel, sdist and npm package into a folder")
    package.add_argument("folder", type=Path)
    package.add_argument("--tag", default="", help="the release's tag, which must be the version")

    serve = subparsers.add_parser("serve", help="build and serve the site on this machine")
    serve.add_argument("--port", type=int, default=8000, help="default 8000, else a free one")

    notebooks = subparsers.add_parser("notebook", help="JupyterLite with this package in dist-notebook/, served")
    notebooks.add_argument("--once", action="store_true", help="run every notebook in headless Chromium and end")
    notebooks.add_argument("--write", action="store_true", help="the same, and keep the outputs in notebooks/")
    notebooks.add_argument("--port", type=int, default=8000, help="default 8000, else a free one")

    subparsers.add_parser("bench", help="compare with onnxruntime-web; more arguments go to bench/run.py")

    subparsers.add_parser("tune", help="measure the kernels a model could run; more arguments go to bench/tune.py")

    lint = subparsers.add_parser("lint", help="ruff, mypy --strict, import-linter, import cycles of web/, tsc")
    lint.add_argument("--fix", action="store_true", help="let ruff repair and format first")

    fuzz = subparsers.add_parser("fuzz", help="atheris on reader and planner; or, --minutes, operators against a peer")
    fuzz.add_argument("--seconds", type=int, default=60, help="for each target (default 60)")
    fuzz.add_argument("--fresh", action="store_true", help="begin with the seeds alone, as CI does")
    fuzz.add_argument("--minutes", type=float, help="random operators and graphs, NumPy and GPU, against onnxruntime")
    fuzz.add_argument("--seed", type=int, default=0, help="of --minutes: the same number gives the same samples")

    zoo_ = subparsers.add_parser("zoo", help="export real architectures and compare; writes docs/architectures.md")
    zoo_.add_argument("names", nargs="*", default=(), help="only these models")
    zoo_.add_argument("--source", default="", choices=zoo.SOURCES, help="only models of this library")
    zoo_.add_argument("--again", action="store_true", help="export also what is in the cache")
    zoo_.add_argument(
        "--treated", action="store_true", help="what optimisers, quantisers and such make of them, instead"
    )
    zoo_.add_argument("--trained", action="store_true", help="trained models that packages ship, instead")
    zoo_.add_argument("--treatment", action="append", default=[], help="only these treatments, by pattern")
    zoo_.add_argument("--share", type=int, default=100, help="per cent of the pairs of model and treatment")

    soak = subparsers.add_parser("soak", help="the long forms of the reliability tests; prints a table")
    soak.add_argument("--minutes", type=int, default=30, help="about how long (default 30)")

    args, rest = parser.parse_known_args(argv)
    if rest and args.command not in ("test", "bench", "tune"):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return args, rest


def main(argv: Sequence[str]) -> int:
    args, rest = parse_args(argv)
    try:
        match args.command:
            case "demo":
                return commands.demo(once=args.once, port=args.port)
            case "test":
                chosen = args.chosen or ("all" if rest else "core")
                return commands.test(native=not args.browser, browser=not args.native, chosen=chosen, pytest_args=rest)
            case "nightly":
                return commands.nightly()
            case "build":
                return commands.build()
            case "package":
                return commands.package(folder=args.folder, tag=args.tag)
            case "docs":
                return commands.docs()
            case "serve":
                return commands.serve(port=args.port)
            case "bench":
                return commands.bench(rest)
            case "tune":
                return commands.bench(rest, "tune.py")
            case "fuzz" if args.minutes:
                return endurance.differential(minutes=args.minutes, seed=args.seed)
            case "zoo" if args.treated:
                return zoo.treated(
                    source=args.source, names=args.names, treatments=args.treatment, share=args.share, again=args.again
                )
            case "zoo" if args.trained:
                return zoo.trained(names=args.names, again=args.again)
            case "zoo":
                return zoo.zoo(source=args.source, names=args.names, again=args.again)
            case "notebook":
                return notebook.notebook(once=args.once, write=args.write, port=args.port)
            case "fuzz":
                return endurance.fuzz(seconds=args.seconds, fresh=args.fresh)
            case "soak":
                return endurance.soak(minutes=args.minutes)
            case _:
                return commands.lint(fix=args.fix)
    except SetupError as error:
        print(f"dev.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
