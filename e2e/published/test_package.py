"""The npm package: `npm pack` of dist/, installed, imported by node, by TypeScript and by a page with SRI."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tarfile
import tomllib
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from e2e.harness.browser import guarded_page
from e2e.published.bundlers import install, pack, run
from tools.devkit import fetch, pins
from tools.devkit.integrity import digest
from tools.devkit.server import Server
from tools.devkit.shell import ROOT

CONSUMER = """
import ort, { InferenceSession, Tensor, env, type TypedTensor } from 'pyruntime';
import * as page from 'pyruntime/page';
import { PyruntimeModel, type PyruntimeModelAttributes } from 'pyruntime/widget';
import 'pyruntime/worker';

async function classify(image: Float32Array): Promise<number> {
  env.logLevel = 'error';
  env.wasm.numThreads = 1;
  const options: InferenceSession.SessionOptions = {
    executionProviders: ['webgpu', { name: 'webgpu', preferredLayout: 'NCHW' }],
    preferredOutputLocation: { probabilities: 'gpu-buffer' },
    freeDimensionOverrides: { N: 1 },
    externalData: ['weights.bin', { path: 'more.bin', data: new Uint8Array(4) }],
    signal: AbortSignal.timeout(1000),
  };
  const session: InferenceSession = await InferenceSession.create('digits.onnx', options);
  const feeds: InferenceSession.FeedsType = { image: new Tensor('float32', image, [1, 1, 16, 16]) };
  const { probabilities } = await session.run(feeds, ['probabilities'], { tag: 'run' });
  const data = (await probabilities.getData(true)) as Float32Array;
  const typed = probabilities as TypedTensor<'int64'>;
  const big: bigint = typed.data[0];
  const norm = { mean: [1, 2, 3], bias: 4 };
  const picture: Tensor = await Tensor.fromImage(new ImageData(1, 1), { tensorLayout: 'NHWC', norm });
  const words: string[] = [...session.inputNames, session.inputMetadata[0].type, picture.location];
  await session.release();
  const events = await session.endProfiling();
  const versions = [ort.env.versions.pyodide, page.env.versions.pyruntime];
  return data[0] + Number(big) + words.length + events.length + versions.length;
}

declare const attributes: PyruntimeModelAttributes;
const source: string | undefined = attributes.src;

function listen(element: PyruntimeModel): void {
  element.addEventListener('result', ({ detail }) => console.log(detail.outputs, detail.ms.toFixed()));
  element.addEventListener('progress', ({ detail }) => console.log(detail.phase, detail.totalProgress));
  document.querySelector('pyruntime-model')?.run({ x: [1, 2] });
}
export { classify, listen, source };
"""

WRONG = """
import { InferenceSession, Tensor } from 'pyruntime';
new Tensor('float31', [1]);
InferenceSession.create('x.onnx', { graphOptimizationLevel: 'most' });
"""


MOST_PACKED, MOST_UNPACKED = 23_000_000, 34_000_000
"""Bytes of the tarball, and of its files, with the fast encoding of the snapshot."""


@pytest.fixture(scope="module")
def project(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that has the packed package in its node_modules."""
    folder = tmp_path_factory.mktemp("package")
    tarball = pack(site, folder)
    installed = folder / "node_modules" / "pyruntime"
    installed.mkdir(parents=True)
    with tarfile.open(tarball) as archive:
        archive.extractall(folder / "unpacked")  # ours; Python 3.11.2, Debian's, has no filters yet
    installed.rmdir()
    shutil.move(folder / "unpacked" / "package", installed)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def test_package__its_files__are_what_a_page_needs_and_no_more(project: Path) -> None:
    package = project / "node_modules" / "pyruntime"
    described = json.loads((package / "package.json").read_text())
    assert described["version"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for target in described["exports"].values():
        for path in target.values() if isinstance(target, dict) else [target]:
            assert (package / path).is_file(), path
    names = {path.relative_to(package).parts[0] for path in package.rglob("*") if path.is_file()}
    wheel = f"pyruntime_webgpu-{described['version']}-py3-none-any.whl"
    wanted = {
        "web",
        "pyodide",
        "snapshot",
        wheel,
        "integrity.json",
        "sbom.cdx.json",
        "package.json",
        "README.md",
        "LICENSE",
        "NOTICE",
    }
    assert names == wanted
    assert not (package / "web" / "ui" / "app").exists()


def test_package__its_size__is_within_the_budget_and_no_file_is_there_twice(project: Path) -> None:
    (tarball,) = project.glob("*.tgz")
    files = [path for path in (project / "node_modules" / "pyruntime").rglob("*") if path.is_file()]
    assert tarball.stat().st_size <= MOST_PACKED
    assert sum(path.stat().st_size for path in files) <= MOST_UNPACKED
    large = [digest(path) for path in files if path.stat().st_size > 1000]
    assert len(set(large)) == len(large)


@pytest.mark.parametrize("call", ["InferenceSession.create('x.onnx')", "TextGenerator.create('x/')", "preload()"])
def test_package__used_in_node__error_says_what_to_use(project: Path, call: str) -> None:
    script = (
        "const { InferenceSession, TextGenerator, preload } = await import('pyruntime');"
        f"await {call}.catch(({{ message }}) => console.log(message));"
    )
    done = subprocess.run(
        ["node", "--input-type=module", "--eval", script], cwd=project, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    assert re.fullmatch(r"pyruntime runs models in browsers\b.*onnxruntime-node.*pyruntime-webgpu.*\n", done.stdout)


def test_package__publint_and_attw__find_nothing(project: Path, tmp_path: Path) -> None:
    (tarball,) = project.glob("*.tgz")
    install("checks", tmp_path)
    assert "All good!" in run(tmp_path, "publint", str(tarball))
    run(tmp_path, "attw", str(tarball), "--profile", "esm-only")


@pytest.mark.parametrize("name", ["pyruntime", "pyruntime/page", "pyruntime/widget"])
def test_package__imported_by_node__has_its_names(project: Path, name: str) -> None:
    script = f"const names = Object.keys(await import('{name}')); console.log(names.sort().join())"
    done = subprocess.run(
        ["node", "--input-type=module", "--eval", script], cwd=project, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    api = "InferenceSession,Tensor,adapterInfo,default,env,preload"
    assert set(done.stdout.strip().split(",")) >= set(("PyruntimeModel" if "widget" in name else api).split(","))


def check_types(project: Path, *, webgpu: bool) -> dict[str, str]:
    """What tsc --strict says of the two files, by file."""
    (project / "consumer.ts").write_text(CONSUMER)
    (project / "wrong.ts").write_text(WRONG)
    compiler = fetch.npm_package(pins.TYPESCRIPT) / "bin" / "tsc"
    types = [str(fetch.npm_package(pins.WEBGPU_TYPES) / "dist" / "index.d.ts")] if webgpu else []
    options = {"strict": True, "noEmit": True, "target": "es2022", "module": "es2022", "moduleResolution": "bundler"}
    libraries = {"lib": ["es2023", "dom", "dom.iterable"], "types": [], "skipDefaultLibCheck": True}
    config = {"compilerOptions": {**options, **libraries}, "files": ["consumer.ts", "wrong.ts", *types]}
    (project / "tsconfig.json").write_text(json.dumps(config))
    command = ["node", str(compiler), "--project", "tsconfig.json", "--pretty", "false"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120)
    complaints: dict[str, str] = {}
    name = ""
    for line in done.stdout.splitlines():
        name = name if line.startswith(" ") else line.split("(")[0]
        if not name.endswith("@webgpu/types/dist/index.d.ts"):  # TypeScript 7 has these types, too
            complaints[name] = complaints.get(name, "") + line
    return complaints


@pytest.mark.parametrize("webgpu", [True, False], ids=["with WebGPU's types", "without"])
def test_types__of_a_strict_project__hold_and_complain_of_wrong_code(project: Path, webgpu: bool) -> None:
    complaints = check_types(project, webgpu=webgpu)
    assert complaints.keys() == {"wrong.ts"}, complaints
    assert "wrong.ts(3," in complaints["wrong.ts"], "float31"
    assert "wrong.ts(4," in complaints["wrong.ts"], "most"


def test_integrity__of_the_built_site__is_that_of_every_file(site: Path) -> None:
    hashes = json.loads((site / "integrity.json").read_text())
    files = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    documents = {file for file in files if file.startswith("docs/")}
    assert hashes.keys() == files - documents - {"integrity.json"}
    for name in ("web/widget.js", "index.html", "pyodide/pyodide.asm.wasm"):
        assert hashes[name] == digest(site / name)


PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>SRI</title>
<script type="module" src="node_modules/pyruntime/web/widget.js" integrity="{hash}" crossorigin></script>
<pyruntime-model src="models/digits.onnx" input="draw" loading="eager"></pyruntime-model>
</html>"""


@pytest.mark.parametrize("true", [True, False], ids=["its hash", "another hash"])
def test_installed_package__on_a_page_with_sri__runs_where_the_hash_is_right(
    browser: Browser, project: Path, site: Path, true: bool
) -> None:
    name = "web/widget.js" if true else "web/page.js"
    hashes = json.loads((project / "node_modules" / "pyruntime" / "integrity.json").read_text())
    (project / "index.html").write_text(PAGE.format(hash=hashes[name]))
    with (
        Server({"/": project, "/models/": site / "models"}) as server,
        guarded_page(browser, server.url) as (page, guard),
    ):
        guard.allow("favicon|404" if true else "favicon|404|integrity")
        if true:
            page.goto(server.url)
            page.locator("pyruntime-model .pad").wait_for()
        else:
            with page.expect_console_message(lambda message: "integrity" in message.text):
                page.goto(server.url)
        assert page.evaluate("customElements.get('pyruntime-model') !== undefined") is true
