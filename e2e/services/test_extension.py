"""A session in an extension's page, which has the files of the site inside the extension."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from playwright.sync_api import Playwright

from e2e.harness.browser import FLAGS
from tools.devkit.chromium import ensure_chromium
from tools.devkit.shell import ROOT

DIGITS = ROOT / "models" / "digits.onnx"
POLICY = {"extension_pages": "script-src 'self' 'wasm-unsafe-eval'; object-src 'self'"}
RUN = """async () => {
    const { InferenceSession, Tensor } = await import('/site/web/pyruntime.js');
    const session = await InferenceSession.create('/site/models/digits.onnx', { cachePlan: true });
    const image = new Tensor('float32', new Float32Array(256), [1, 1, 16, 16]);
    const { probabilities } = await session.run({ image });
    return [...probabilities.data];
}"""


def extension(site: Path, folder: Path) -> str:
    """Write an extension with the site in it; returns the address of its page."""
    folder.mkdir()
    shutil.copytree(site, folder / "site", ignore=shutil.ignore_patterns("docs", "*.map"))
    manifest = {"manifest_version": 3, "name": "pyruntime", "version": "1", "content_security_policy": POLICY}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "page.html").write_text("<!doctype html><title>page</title>")
    digits = hashlib.sha256(str(folder).encode()).hexdigest()[:32]  # Chromium's name of an unpacked extension
    return f"chrome-extension://{''.join(chr(ord('a') + int(digit, 16)) for digit in digits)}/page.html"


def test_session__in_an_extensions_page__answers(playwright: Playwright, site: Path, tmp_path: Path) -> None:
    address = extension(site, tmp_path / "extension")
    context = playwright.chromium.launch_persistent_context(
        tmp_path / "profile",
        executable_path=ensure_chromium(Path(sys.executable)),
        headless=True,
        args=[
            *FLAGS,
            f"--load-extension={tmp_path / 'extension'}",
            "--disable-features=DisableLoadExtensionCommandLineSwitch",
        ],
        ignore_default_args=["--disable-extensions"],
    )
    try:
        page = context.new_page()
        page.goto(address)
        found = page.evaluate(RUN)
    finally:
        context.close()
    (expected,) = onnxruntime.InferenceSession(DIGITS).run(None, {"image": np.zeros((1, 1, 16, 16), np.float32)})
    np.testing.assert_allclose(found, expected[0], rtol=1e-3, atol=1e-4)
