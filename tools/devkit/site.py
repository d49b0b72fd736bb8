"""The static site in `dist/`: page, JavaScript, wheel, snapshot, vendored Pyodide, models. It needs no other server."""

from __future__ import annotations

import fcntl
import gzip
import shutil
import tomllib
from pathlib import Path

from tools.devkit import pins
from tools.devkit.bench_page import FOLDER, PAGE, light_models, peer_mounts, write_bench_page
from tools.devkit.bundle import bundle
from tools.devkit.fetch import npm_package
from tools.devkit.integrity import write_integrity
from tools.devkit.pyodide import ensure_pyodide
from tools.devkit.sbom import write_sbom
from tools.devkit.shell import CACHE, DIST, ROOT, SetupError, check, fingerprint, put_stamp, say, stamped
from tools.devkit.snapshot import ensure_snapshot

# Outside dist/, which holds the site and nothing else.
STAMP = CACHE / "site.stamp"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FORCED = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
PACKAGE_SOURCES = ("pyproject.toml", "README.md", "LICENSE", "pyruntime", *FORCED)
STATIC = ("index.html", "service-worker.js", "models", "examples", "package.json", "README.md", "LICENSE", "NOTICE")
WEB, MODELS = ROOT / "web", ROOT / "models"
# The page's models that run without Python, each with options of `pyruntime compile`. Pictures have the shapes of the
# pieces and tiles in web/ui/app/picture/.
PLANS = {
    "digits": (),
    "austen/onnx/model_q4": ("--text",),
    "enlarge3": ("--shape", "picture=1,3,72,96", "--shape", "picture=1,3,192,192"),
}
FETCHED_LATER = "packages.bin"
"""The snapshot's file that comes with the first read of a package's file, as Python's standard library does."""

TOOLS = (PAGE, *(Path(__file__).with_name(name) for name in ("site.py", "bundle.py", "bench_page.py", "pins.py")))
# The content security policy of the project; the server sends it and the tests run with it.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'; worker-src 'self'; "
    "style-src 'self'; img-src 'self' blob:"
)
# Pages of examples/ contain their script and style, and may fetch a model from an address that the visitor enters.
EXAMPLES_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline' 'wasm-unsafe-eval'; connect-src 'self' https:; "
    "worker-src 'self'; style-src 'unsafe-inline'; img-src 'self' blob:"
)
# The page /bench/ fetches onnxruntime-web if the visitor agrees.
BENCH_POLICY = CONTENT_SECURITY_POLICY.replace("'wasm-unsafe-eval'", f"'wasm-unsafe-eval' {FOLDER}").replace(
    "connect-src 'self'", f"connect-src 'self' {FOLDER}"
)

# The documentation's generator writes styles and small scripts into its pages.
DOCS_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline' 'wasm-unsafe-eval'; connect-src 'self'; "
    "worker-src 'self' blob:; style-src 'self' 'unsafe-inline'; img-src 'self' blob: data:; font-src 'self'"
)


def mounts(site: Path) -> dict[str, Path]:
    """Return the folders to serve: the site, and below `src/` the same site with the unbundled sources of `web/`."""
    sources = {"/src/": site, "/src/web/": WEB, "/src/web/vendor/": site / "web" / "vendor"}
    return {"/": site, **sources, **peer_mounts()}


def wheel_name() -> str:
    return f"pyruntime_webgpu-{PYPROJECT['project']['version']}-py3-none-any.whl"


def build_wheel(python: Path) -> Path:
    """Build the checkout's wheel; its bytes are reproducible. Built without isolation, so without network."""
    folder, name = CACHE / "wheel", wheel_name()
    stamp, value = folder / ".stamp", fingerprint(*(ROOT / source for source in PACKAGE_SOURCES))
    if not stamped(stamp, value):
        shutil.rmtree(folder, ignore_errors=True)
        command: list[str | Path] = [python, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder]
        check(command, env={"SOURCE_DATE_EPOCH": "1580601600"}, quiet=True)
        put_stamp(stamp, value)
    return folder / name


def test_images(python: Path) -> Path:
    """Return the digits model's held-out images in the page's format."""
    folder, script = CACHE / "digits", ROOT / "tools" / "digits_data.py"
    stamp, value = folder / ".stamp", fingerprint(script)
    if not stamped(stamp, value):
        check([python, "-m", "tools.digits_data", folder], quiet=True)
        put_stamp(stamp, value)
    return folder


def vendored(folder: Path) -> None:
    """Fill `folder`, the site's web/vendor/, with the third-party libraries that web/ imports, and their licenses."""
    folder.mkdir()
    for package, module, name in (
        (pins.TOKENIZERS_JS, "dist/tokenizers.min.mjs", "tokenizers"),
        (pins.JINJA_JS, "dist/index.js", "jinja"),
    ):
        source = npm_package(package)
        shutil.copyfile(source / module, folder / f"{name}.js")
        shutil.copyfile(source / "LICENSE", folder / f"{name}.LICENSE")


def compiled_models(python: Path) -> Path:
    """Compile the plans of the page's models, which run without Python; their bytes are reproducible."""
    folder = CACHE / "plans"
    stamp, value = folder / ".stamp", fingerprint(*(ROOT / source for source in PACKAGE_SOURCES), MODELS, str(PLANS))
    if not stamped(stamp, value):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, options in PLANS.items():
            plan = folder / f"{name}.plan"
            plan.parent.mkdir(parents=True, exist_ok=True)
            check([python, "-m", "pyruntime", "compile", MODELS / f"{name}.onnx", "-o", plan, *options], quiet=True)
        put_stamp(stamp, value)
    return folder


def write_sizes(module: Path, runtime: Path, snapshot: Path) -> None:
    """Write web/sizes.js with the bytes that starting Python downloads, since servers send no total."""
    names = ("pyodide.mjs", pins.PYODIDE_SCRIPT, "pyodide.asm.wasm", "pyodide-lock.json")
    files = [*(runtime / name for name in names), *(path for path in snapshot.iterdir() if path.name != FETCHED_LATER)]
    size = sum(min(len(data), len(gzip.compress(data))) for data in (path.read_bytes() for path in files))
    module.write_text(f"export const PYTHON_BYTES = {size};\n")


def write_version(module: Path) -> None:
    """Write the chosen Pyodide version into web/api/env.js or web/snapshot/memory.js."""
    text = module.read_text().replace(pins.PYODIDES["0.29"].version, pins.PYODIDE_VERSION)
    module.write_text(text)


def build_site(python: Path) -> Path:
    """Build `dist/` if any of its sources has changed; only one build runs at a time."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return build_site_alone(python)


def build_site_alone(python: Path) -> Path:
    runtime, wheel, images = ensure_pyodide(), build_wheel(python), test_images(python)
    startup, plans = ensure_snapshot(python, runtime, [wheel]), compiled_models(python)
    light = light_models(python)
    present = [ROOT / name for name in STATIC if (ROOT / name).exists()]
    value = fingerprint(
        *(str(path) for path in present), *present, WEB, plans, startup, (runtime / ".stamp").read_text(), *TOOLS,
        *light,
    )  # fmt: skip
    if DIST.is_dir() and stamped(STAMP, value):
        return DIST
    if not WEB.is_dir():
        raise SetupError("web/ is missing: this is no complete checkout.")
    staging = CACHE / "dist.new"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    for path in present:
        if path.is_dir():
            shutil.copytree(path, staging / path.name, ignore=shutil.ignore_patterns("*.py"))
        else:
            shutil.copyfile(path, staging / path.name)
    shutil.copytree(WEB, staging / "web")
    write_sizes(staging / "web" / "sizes.js", runtime, startup / "snapshot")
    for name in ("api/env.js", "snapshot/memory.js"):
        write_version(staging / "web" / name)
    shutil.copytree(startup, staging, ignore=shutil.ignore_patterns(".stamp"), dirs_exist_ok=True)
    shutil.copytree(runtime, staging / "pyodide", ignore=shutil.ignore_patterns(".stamp", pins.PYODIDE_CLASSIC))
    shutil.copytree(images, staging / "models", ignore=shutil.ignore_patterns(".stamp"), dirs_exist_ok=True)
    shutil.copytree(plans, staging / "models", ignore=shutil.ignore_patterns(".stamp"), dirs_exist_ok=True)
    (staging / "models" / "light").mkdir()
    for path in light:
        shutil.copyfile(path, staging / "models" / "light" / path.name)
    write_bench_page(staging / "bench")
    bundle(staging)
    vendored(staging / "web" / "vendor")
    write_sbom(staging, wheel, PYPROJECT["project"]["version"])
    write_integrity(staging)
    shutil.rmtree(DIST, ignore_errors=True)
    staging.rename(DIST)
    put_stamp(STAMP, value)
    size = sum(file.stat().st_size for file in DIST.rglob("*") if file.is_file())
    say(f"built dist/ ({size / 1e6:.1f} MB)")
    return DIST
