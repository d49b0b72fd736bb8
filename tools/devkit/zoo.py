"""`dev.py zoo`: exports architectures or downloads trained models, runs them here and in onnxruntime, and compares."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tools.devkit import chromium
from tools.devkit.shell import CACHE, ROOT, check, fingerprint, put_stamp, python, run, say, stamped
from tools.devkit.site import build_site
from tools.devkit.venv import ensure_venv

SOURCES = ("transformers", "timm", "torchvision", "diffusers")
REQUIREMENTS = ROOT / "requirements-zoo.txt"
VENV = CACHE / "venv-zoo"


def zoo(*, source: str, names: Sequence[str], again: bool) -> int:
    """Export what is not cached, check all models natively and in the browser, and write docs/architectures.md."""
    ensure_venv()
    chosen: list[str | Path] = [*(["--source", source] if source else []), *names]
    more: Sequence[str] = ["--again"] if again else []
    check([exporter(), "-m", "tools.zoo.export", *chosen, *more])
    status = run([python(), "-m", "tools.zoo.check", "--again", *chosen])
    browser = {chromium.VARIABLE: str(chromium.ensure_chromium(python()))}
    build_site(python())
    status = max(status, run([python(), "-m", "tools.zoo.browser", "--again", *chosen], env=browser))
    return max(status, run([python(), "-m", "tools.zoo.table", *chosen]))


def treated(*, source: str, names: Sequence[str], treatments: Sequence[str], share: int, again: bool) -> int:
    """Export what is not cached, apply treatments, and compare with onnxruntime; `again` repeats comparisons."""
    chosen: list[str | Path] = [*(["--source", source] if source else []), *names]
    check([exporter(), "-m", "tools.zoo.export", *chosen])
    more = [word for name in treatments for word in ("--treatment", name)]
    more += ["--share", str(share), *(["--again"] if again else [])]
    return run([exporter(), "-m", "tools.zoo.treated", *chosen, *more])


def trained(*, names: Sequence[str], again: bool) -> int:
    """Download packages with trained models, check those in both, and write docs/MODELS.md."""
    ensure_venv()
    more: list[str | Path] = [*names, *(["--again"] if again else [])]
    status = run([python(), "-m", "tools.zoo.trained.check", *more])
    browser = {chromium.VARIABLE: str(chromium.ensure_chromium(python()))}
    build_site(python())
    status = max(status, run([python(), "-m", "tools.zoo.trained.browser", *more], env=browser))
    return max(status, run([python(), "-m", "tools.zoo.trained.table", *names]))


def exporter() -> Path:
    """Return the interpreter of an environment with torch and the packages that the models come from."""
    interpreter = VENV / "bin" / "python"
    stamp = VENV / "pyruntime-zoo.stamp"
    if interpreter.is_file() and stamped(stamp, fingerprint(REQUIREMENTS)):
        return interpreter
    say(f"installing {REQUIREMENTS.name} into {VENV.relative_to(ROOT)}: some gigabytes")
    check([sys.executable, "-m", "venv", "--clear", VENV])
    check([interpreter, "-m", "pip", "install", "--quiet", "--requirement", REQUIREMENTS])
    put_stamp(stamp, fingerprint(REQUIREMENTS))
    return interpreter
