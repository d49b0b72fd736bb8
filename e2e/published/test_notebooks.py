"""The notebook site in JupyterLite: its files, the notebooks as they are committed, porting, waiting, rich display."""

from __future__ import annotations

import base64
import json
import pickle
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
from playwright.sync_api import Browser, expect

from e2e.harness.browser import Guard, guarded_page
from e2e.harness.notebook import USUAL, CellFailed, Notebooks
from tests.genai.folder import write_folder
from tests.genai.test_genai import HERE as GENAI
from tests.genai.test_genai import SCRIPTS as GENAI_SCRIPTS
from tests.scripts.models import MODELS, write_models
from tests.scripts.test_scripts import SCRIPTS, compare, run_script
from tools.devkit.fetch import npm_package
from tools.devkit.notebook_site import NOTEBOOKS, build_notebook_site
from tools.devkit.pins import PYSCRIPT
from tools.devkit.server import Server
from tools.devkit.shell import ROOT, sha256
from tools.notebooks import Cell, differences, outputs_of, read

SCRIPT_FOLDER = Path(__file__).parents[2] / "tests" / "scripts"
NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))

# What cells that vary must show, by notebook and cell.
SHOWN = {
    ("a_language_model_writes", "sample"): ("stdout",),
    ("a_language_model_writes", "probabilities"): ("' afraid'", "%"),
    ("a_language_model_writes", "sampler"): ("It is a truth universally acknowledged",),
    ("a_language_model_writes", "speed"): ("first time:", "tokens of a prompt", "written, a second"),
    ("a_language_model_writes", "memory"): ("caches: 5120 bytes a token", "text/html", "<svg"),
    ("first_steps", "progress"): ("parse", "adapter", "ms"),
    ("first_steps", "session"): ("InferenceSession", "text/html", "WebGpuExecutionProvider", "parameters"),
    ("look_inside_a_model", "explain"): ("text/html", "<svg", "softmax1", "@compute", "fusions"),
    ("look_inside_a_model", "memory"): ("text/html", "<svg", "lower bound", "<title>"),
    ("look_inside_a_model", "batches"): ("batch  1:", "batch 64:", "KB of activations"),
    ("look_inside_a_model", "profile"): ("text/html", 'role="img"', "ms a run"),
    ("write_your_own_operator", "generated"): ("exp(-beta * x)", "@compute"),
    ("write_your_own_operator", "mistake"): ("WGSL line", "'expo'", "| fn main("),
}


@pytest.fixture(scope="module")
def notebook_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(build_notebook_site(Path(sys.executable)), tmp_path_factory.mktemp("notebook") / "site")


@pytest.fixture(scope="module")
def watched_lab(browser: Browser, notebook_site: Path) -> Iterator[tuple[Notebooks, Guard]]:
    """One JupyterLab for all tests, without the site's policy: it writes styles and compiles code."""
    with (
        Server({"/": notebook_site}, policy=None) as server,
        guarded_page(browser, server.url, service_workers="allow") as (page, guard),
    ):
        expected(guard)
        yield Notebooks(page, server.url), guard
        expected(guard)


@pytest.fixture
def lab(watched_lab: tuple[Notebooks, Guard]) -> Iterator[Notebooks]:
    lab, guard = watched_lab
    expected(guard)
    yield lab
    guard.check()


@pytest.fixture
def kernel(lab: Notebooks) -> Notebooks:
    """A notebook is open, whichever ran last."""
    if lab.path is None:
        lab.open(f"{NAMES[0]}.ipynb")
    return lab


def expected(guard: Guard) -> None:
    for pattern in USUAL:
        guard.allow(pattern)


def text_of(outputs: list[dict[str, Any]]) -> str:
    """What cells printed or showed as text."""
    return "".join(o["text"] if o["output_type"] == "stream" else o["data"]["text/plain"] for o in outputs)


def test_site__lock_file__every_entry_is_there_with_its_hash(notebook_site: Path) -> None:
    folder = notebook_site / "static" / "pyodide"
    lock = json.loads((folder / "pyodide-lock.json").read_text())
    packages = lock["packages"]
    assert {"numpy", "pyruntime-webgpu", "ipython", "micropip", "pyodide-kernel", "comm", "sqlite3"} <= packages.keys()
    for name, entry in packages.items():
        assert sha256(folder / entry["file_name"]) == entry["sha256"], name
        assert set(entry["depends"]) <= packages.keys(), name
    wheels = {path.name for path in folder.glob("*.whl")}
    assert wheels == {entry["file_name"] for entry in packages.values()}


@pytest.mark.parametrize("snapshot", [True, False], ids=["snapshot", "nothing"])
def test_kernel__from_its_snapshot_or_from_nothing__imports_and_runs(
    snapshot: bool, browser: Browser, notebook_site: Path, tmp_path: Path
) -> None:
    none = tmp_path / "manifest.json"
    none.write_text("null")
    folders = {"/": notebook_site}
    if not snapshot:
        folders["/static/pyodide/snapshot/manifest.json"] = none
    with (
        Server(folders, policy=None) as server,
        guarded_page(browser, server.url, service_workers="allow") as (page, guard),
    ):
        names: set[str] = set()
        page.context.on("request", lambda request: names.add(request.url.rsplit("/", 1)[1]))
        expected(guard)
        lab = Notebooks(page, server.url)
        lab.open(f"{NAMES[0]}.ipynb")
        imported = "sorted({'IPython', 'numpy', 'pyruntime'} & set(sys.modules))"
        found = "['IPython', 'numpy', 'pyruntime']" if snapshot else "['IPython']"
        assert text_of(lab.execute(f"import sys\n{imported}")) == found
        outputs = lab.execute(
            SESSION + "import IPython, pyruntime.genai\n%pip install pyruntime-webgpu\nsession.get_providers()"
        )
        assert "WebGpuExecutionProvider" in text_of(outputs)
        assert any(name.endswith(".whl") for name in names) != snapshot


def test_site__contents__are_listed_as_they_are(notebook_site: Path) -> None:
    root = notebook_site / "files"
    for folder in (root, *(path for path in root.rglob("*") if path.is_dir())):
        path = folder.relative_to(root)
        listing = json.loads((notebook_site / "api" / "contents" / path / "all.json").read_text())
        assert (listing["path"], listing["type"]) == ("" if folder == root else path.as_posix(), "directory")
        entries = {entry["path"]: (entry["type"], entry["size"]) for entry in listing["content"]}
        assert entries == {file.relative_to(root).as_posix(): kind_and_size(file) for file in folder.iterdir()}
    assert {f"{name}.ipynb" for name in NAMES} | {"digits.onnx", "austen"} <= {path.name for path in root.iterdir()}
    assert (root / "austen" / "onnx" / "model_q4.onnx").is_file()


def kind_and_size(file: Path) -> tuple[str, int | None]:
    if file.is_dir():
        return "directory", None
    return "notebook" if file.suffix == ".ipynb" else "file", file.stat().st_size


@pytest.mark.parametrize("name", NAMES)
def test_notebook__all_cells_run__give_what_it_holds(name: str, lab: Notebooks) -> None:
    stored = read(NOTEBOOKS / f"{name}.ipynb")
    lab.open(f"{name}.ipynb")
    fresh = lab.run_all()
    found = list(differences(stored, fresh))
    assert not found, "\n".join(found)
    cells: dict[str, Cell] = {cell["id"]: cell for cell in fresh}
    for (notebook, cell), words in SHOWN.items():
        shown = json.dumps(outputs_of(cells[cell]), ensure_ascii=False) if notebook == name else ""
        missing = [word for word in words if notebook == name and json.dumps(word)[1:-1] not in shown]
        assert not missing, f"cell {cell!r} shows no {missing}"


@pytest.mark.parametrize("name", GENAI_SCRIPTS)
def test_genai_script__in_the_notebook__results_of_the_wheel(name: str, kernel: Notebooks, tmp_path: Path) -> None:
    """On the GPU, its import changed and nothing else, synchronous as it is."""
    files = {path.name: path.read_bytes() for path in write_folder(tmp_path).iterdir()}
    contents = {path: base64.b64encode(data).decode() for path, data in files.items()}
    kernel.execute(
        "import base64, json, os, pathlib\n"
        "folder = pathlib.Path('/tmp/genai/model')\n"
        "folder.mkdir(parents=True, exist_ok=True)\n"
        f"for name, data in {contents!r}.items():\n"
        "    (folder / name).write_bytes(base64.b64decode(data))\n"
        "os.chdir(folder.parent)"
    )
    source = (GENAI / "scripts" / f"{name}.py").read_text("utf-8")
    assert source.count("import onnxruntime_genai as og\n") == 1
    kernel.execute(source.replace("import onnxruntime_genai as og", "import pyruntime.genai as og"))
    device, _, results = text_of(kernel.execute("print(model.device_type, json.dumps(results))")).partition(" ")
    kernel.execute("os.chdir('/drive')\nmodel.decoder.release()")
    assert device == "WebGPU"
    assert json.loads(results) == json.loads((GENAI / "data" / "results.json").read_text())[name]


@pytest.mark.parametrize("name", SCRIPTS)
def test_script__in_the_notebook__same_results_as_onnxruntime(
    name: str, kernel: Notebooks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its one import changed; one of them with no change at all, after `install_as_onnxruntime`."""
    models = {n: base64.b64encode(make().SerializeToString()).decode() for n, make in MODELS.items()}
    kernel.execute(
        "import base64, os, pathlib, sys, pyruntime\n"
        "folder = pathlib.Path('/tmp/scripts/models')\n"
        "folder.mkdir(parents=True, exist_ok=True)\n"
        f"for name, data in {models!r}.items():\n"
        "    (folder / f'{name}.onnx').write_bytes(base64.b64decode(data))\n"
        "os.chdir(folder.parent)"
    )
    source = (SCRIPT_FOLDER / f"{name}.py").read_text("utf-8")
    if name == "io_binding":
        kernel.execute("pyruntime.install_as_onnxruntime()")
    else:
        source = source.replace("import onnxruntime as ort", "import pyruntime as ort")
    kernel.execute(source)
    printed = kernel.execute(
        "import pickle\nprint(session.get_providers()[0], base64.b64encode(pickle.dumps(results)).decode())"
    )
    provider, data = text_of(printed).split()
    kernel.execute(
        "os.chdir('/drive')\nfor n in [n for n in sys.modules if n.split('.')[0] == 'onnxruntime']: del sys.modules[n]"
    )
    assert provider == "WebGpuExecutionProvider"
    write_models(tmp_path)
    monkeypatch.chdir(tmp_path)
    compare(pickle.loads(base64.b64decode(data)), run_script(name, onnxruntime.__name__))


SESSION = "import numpy as np, pyruntime as ort\nsession = ort.InferenceSession('digits.onnx')\n"


def test_run__cell_function_comprehension_magic_and_await__give_the_same(kernel: Notebooks) -> None:
    outputs = kernel.execute(
        SESSION
        + """feed = {"image": np.zeros((1, 1, 16, 16), np.float32)}
def inside():
    return session.run(None, feed)[0]
class Shown:
    def __repr__(self):
        return str(session.run(None, feed)[0].shape)
got = [session.run(None, feed)[0], inside(), *[session.run(None, feed)[0] for _ in range(2)]]
print(len(got), all(np.array_equal(g, got[0]) for g in got))
Shown()"""
    )
    assert text_of(outputs) == "4 True\n(1, 10)"
    kernel.execute("%%time\ntimed = session.run(None, feed)[0]")
    awaited = kernel.execute("np.array_equal((await session.run_async(None, feed))[0], timed)")
    assert text_of(awaited) == "True"


def test_run__where_the_stack_cannot_switch__names_the_awaitable_form(kernel: Notebooks) -> None:
    outputs = kernel.execute(
        SESSION
        + """import js
from pyodide.ffi import create_proxy
def called(*_):
    try:
        session.run(None, {"image": np.zeros((1, 1, 16, 16), np.float32)})
    except ort.RuntimeException as error:
        return str(error)
print(js.Array.of(1).map(create_proxy(called))[0])"""
    )
    assert "await session.run_async(...)" in text_of(outputs)


def test_error__caught_in_a_cell__does_not_fail_it(kernel: Notebooks) -> None:
    outputs = kernel.execute(
        SESSION
        + """try:
    session.run(None, {"image": np.zeros((1, 1, 16, 15), np.float32)})
except ort.InvalidArgument as error:
    print("caught")"""
    )
    assert text_of(outputs) == "caught\n"


def test_error__not_caught__has_a_short_traceback(kernel: Notebooks) -> None:
    with pytest.raises(CellFailed) as failed:
        kernel.execute(SESSION + "session.run(None, {'picture': np.zeros((1, 1, 16, 16), np.float32)})")
    message = str(failed.value)
    assert "MissingInput" in message and "picture" in message
    assert "feeds.py" not in message, "frames of the inside"


def test_readme__its_python_in_a_cell__runs_on_the_gpu(kernel: Notebooks) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)
    kernel.execute(block.replace("models/digits.onnx", "digits.onnx"))
    checked = "probabilities.shape, session.explain().nodes[0].placement"
    assert text_of(kernel.execute(checked)) == "((1, 10), 'gpu')"


def test_completion__of_what_would_wait__does_no_harm(kernel: Notebooks) -> None:
    """Tab is Python called synchronously: looking at `gpu.device` cannot wait there."""
    kernel.execute(SESSION)
    assert "memory_plan" in kernel.complete("session.mem")
    assert "limits" not in kernel.complete("ort.gpu.device.li")
    assert text_of(kernel.execute("ort.gpu.device.limits.maxBufferSize > 0")) == "True"


def test_pyscript__recipe_of_the_documentation__runs_on_the_gpu(
    browser: Browser, notebook_site: Path, tmp_path: Path
) -> None:
    """The page of docs/notebooks.md as it stands there."""
    recipe = re.search(r"```html\n(.*?)```", (ROOT / "docs" / "notebooks.md").read_text("utf-8"), re.S)
    assert recipe
    (tmp_path / "index.html").write_text(recipe[1], "utf-8")
    folders = {
        "/": tmp_path,
        "/pyscript/": npm_package(PYSCRIPT) / "dist",
        "/pyodide/": notebook_site / "static" / "pyodide",
        "/models/": notebook_site / "files",
    }
    with Server(folders, policy=None) as server, guarded_page(browser, server.url) as (page, _):
        page.goto(server.url)
        answer = page.locator("#answer")
        expect(answer).to_have_text("WebGpuExecutionProvider: 10 probabilities", timeout=180_000)


def test_guard__request_of_the_kernel_to_another_origin__is_noticed(
    kernel: Notebooks, watched_lab: tuple[Notebooks, Guard]
) -> None:
    """The positive control: what the tests above did not see would have been seen."""
    guard = watched_lab[1]
    with pytest.raises(CellFailed):
        kernel.execute("from pyodide.http import pyfetch\nawait pyfetch('https://elsewhere.invalid/')")
    assert guard.foreign_requests == ["https://elsewhere.invalid/"]
    guard.foreign_requests.clear()
    guard.allow("ERR_FAILED|Failed to fetch|elsewhere")
