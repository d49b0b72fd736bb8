"""Bundle web/ for the site: each JavaScript or CSS entry point becomes one minified file, by esbuild.

A page loads few files, and all at once: docs/decisions/0018-bundles.md says why none is split further. All are written
to one folder, for which the addresses of `web/addresses.js` are valid.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tools.devkit import pins
from tools.devkit.fetch import npm_package
from tools.devkit.shell import SetupError

ENTRIES = (
    ("pyruntime.js", "worker.js", "host.js", "downloader.js", "gpu/device.js", "demo.js", "demo.css", "bench.css"),
    ("bench.js", "page.js", "transformers.js", "widget.js"),
)
"""Entry points below web/. Those of the second group import those of the first, which stay separate files: a page has
one `pyruntime.js`, whatever it imports."""

LOADED_LATER = ("host.js", "vendor/*")
"""Imported by entry points of the first group on demand; they share no state with them."""

STARTED_FROM = ("pyodide/*", "snapshot/*", "*.whl")
"""Files of the site that Python starts from. A bundler that takes the package in takes these along."""

REMAINING = ("*.d.ts", "text/generator.d.ts", "ui/app/icon.svg", "ui/app/picture/samples/*.png")
"""What the site has as it is: types, and what pages fetch by address."""

IMPORT = "const importUnresolved=(u)=>import(/* @vite-ignore *//* webpackIgnore: true *//* turbopackIgnore: true */u);"
"""`importUrl` of web/snapshot/importing.js, which other bundlers leave alone. esbuild drops comments elsewhere."""

OPTIONS = (
    *("--bundle", "--format=esm", "--target=es2022", "--charset=utf8", "--legal-comments=none", "--minify"),
    # `sideEffects` of package.json is for the bundles of the package, not for sources.
    *("--ignore-annotations", "--sourcemap", "--log-level=warning", "--log-limit=0"),
)


def addresses(site: Path) -> str:
    """Return web/files.js with the address of each file that Python starts from, relative to the modules of web/."""
    paths = sorted(file.relative_to(site).as_posix() for pattern in STARTED_FROM for file in site.glob(pattern))
    rows = (f"  {json.dumps(path)}: new URL({json.dumps(f'../{path}')}, import.meta.url).href,\n" for path in paths)
    return f"export const FILES = {{\n{''.join(rows)}}};\n"


def bundle(site: Path) -> None:
    """Replace the sources in web/ of `site`, which has all other files already, with bundles.

    Raises:
        SetupError: esbuild fails or warns.
    """
    folder = site / "web"
    (folder / "files.js").write_text(addresses(site))
    (folder / "snapshot" / "importing.js").write_text("export const importUrl = importUnresolved;\n")
    esbuild, names = npm_package(pins.ESBUILD) / "bin" / "esbuild", [name for group in ENTRIES for name in group]
    remaining = {file for pattern in REMAINING for file in folder.glob(pattern)}
    for group, imported in zip(ENTRIES, (LOADED_LATER, ENTRIES[0]), strict=True):
        command: list[str | Path] = [
            "node",
            esbuild,
            *group,
            *OPTIONS,
            "--outdir=.",
            "--outbase=.",
            "--allow-overwrite",
        ]
        command += [f"--external:./{name}" for name in imported]
        command += [f"--banner:js={IMPORT}"] if group is ENTRIES[0] else []
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode or done.stderr:
            raise SetupError(f"esbuild of {', '.join(group)} in web/:\n{done.stderr.strip()}")
    remaining |= {folder / f"{name}{suffix}" for name in names for suffix in ("", ".map")}
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
        elif path.is_file() and path not in remaining:
            path.unlink()
