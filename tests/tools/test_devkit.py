"""The set-up's own machinery: hashes are checked, archives are not trusted, the server sends what the site needs."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import tomllib
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.devkit import pins, pyodide
from tools.devkit.bundle import addresses
from tools.devkit.commands import chosen_tests
from tools.devkit.fetch import HashMismatch, download, extract
from tools.devkit.pyodide import for_bundlers, recompress, record_digest, trim_lock, unsigned
from tools.devkit.server import Server
from tools.devkit.shell import ROOT, SetupError, fingerprint, put_stamp, sha256, stamped
from tools.devkit.site import CONTENT_SECURITY_POLICY


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    site, other = tmp_path / "site", tmp_path / "other"
    for folder in (site, other):
        folder.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (site / "index.html").write_text("<!doctype html>")
    for suffix in ("js", "mjs", "wasm", "json", "onnx", "br", "zst"):
        (site / f"file.{suffix}").write_bytes(b"content")
    (other / "page.html").write_text("other")
    with Server({"/": site, "/other/": other}) as server:
        yield server


@pytest.mark.parametrize(
    ("name", "mime"),
    [
        ("", "text/html; charset=utf-8"),
        ("file.js", "text/javascript; charset=utf-8"),
        ("file.mjs", "text/javascript; charset=utf-8"),
        ("file.wasm", "application/wasm"),
        ("file.json", "application/json"),
        ("file.onnx", "application/octet-stream"),
        ("other/page.html", "text/html; charset=utf-8"),
    ],
)
def test_server__file__sends_its_type_and_the_policy(server: Server, name: str, mime: str) -> None:
    with urllib.request.urlopen(server.url + name) as response:
        assert response.headers["Content-Type"] == mime
        assert response.headers["Content-Security-Policy"] == CONTENT_SECURITY_POLICY
        assert "Cross-Origin-Opener-Policy" not in response.headers
        assert "Cross-Origin-Embedder-Policy" not in response.headers


@pytest.mark.parametrize("path", ["../secret.txt", "%2e%2e/secret.txt", "other/../../secret.txt", "missing.js"])
def test_server__path_outside_its_folders__is_not_found(server: Server, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(server.url + path)
    assert caught.value.code == 404


def test_download__right_hash__writes_the_file(server: Server, tmp_path: Path) -> None:
    download(server.url + "file.js", tmp_path / "got", hashlib.sha256(b"content").hexdigest())
    assert (tmp_path / "got").read_bytes() == b"content"


def test_download__other_hash__raises_and_writes_nothing(server: Server, tmp_path: Path) -> None:
    with pytest.raises(HashMismatch, match=hashlib.sha256(b"content").hexdigest()):
        download(server.url + "file.js", tmp_path / "got", "0" * 64)
    assert not (tmp_path / "got").exists()


def test_extract__links_and_paths_upwards__are_left_out(tmp_path: Path) -> None:
    archive = tmp_path / "package.tgz"
    with tarfile.open(archive, "w:gz") as tar:
        for name in ("package/dist/wanted.js", "package/../../escaped.js", "package/unwanted.js"):
            info = tarfile.TarInfo(name)
            info.size = 4
            tar.addfile(info, io.BytesIO(b"text"))
        link = tarfile.TarInfo("package/dist/link.js")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    extract(archive, ("dist/*.js", "*escaped.js"), tmp_path / "out" / "deep")
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.js")] == ["out/deep/dist/wanted.js"]


def make_wheel(path: Path, content: bytes, recorded: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as wheel:
        wheel.writestr("numpy/data.bin", content)
        record = f"numpy/data.bin,{record_digest(recorded)},{len(recorded)}\nnumpy-1.dist-info/RECORD,,\n"
        wheel.writestr("numpy-1.dist-info/RECORD", record)


def test_recompress__intact_wheel__keeps_every_byte(tmp_path: Path) -> None:
    content = bytes(100_000)
    make_wheel(tmp_path / "stored.whl", content, recorded=content)
    recompress(tmp_path / "stored.whl", tmp_path / "small.whl")
    with zipfile.ZipFile(tmp_path / "small.whl") as small:
        assert small.read("numpy/data.bin") == content
    assert (tmp_path / "small.whl").stat().st_size < 2_000


def test_recompress__file_that_is_not_the_recorded_one__raises(tmp_path: Path) -> None:
    make_wheel(tmp_path / "stored.whl", b"changed", recorded=b"original")
    with pytest.raises(SetupError, match=r"numpy/data\.bin"):
        recompress(tmp_path / "stored.whl", tmp_path / "small.whl")


def test_trim_lock__full_lock__names_only_the_wheel_that_is_there(tmp_path: Path) -> None:
    wheel, lock = tmp_path / "numpy-other-name.whl", tmp_path / "pyodide-lock.json"
    wheel.write_bytes(b"wheel")
    numpy = {"version": pins.NUMPY_VERSION, "depends": [], "file_name": "x.whl", "sha256": "0", "name": "numpy"}
    lock.write_text(json.dumps({"info": {"abi_version": "2025_0"}, "packages": {"numpy": numpy, "scipy": {}}}))
    trim_lock(lock, wheel)
    trimmed = json.loads(lock.read_text())
    assert trimmed["info"] == {"abi_version": "2025_0"}
    assert list(trimmed["packages"]) == ["numpy"]
    assert trimmed["packages"]["numpy"] == numpy | {"file_name": wheel.name, "sha256": sha256(wheel)}


SIGNED = (
    "HEAPU32[(p>>2)+0>>>0]=1;HEAPU16[(t+6>>1)+0>>>0];(d>>2)+n-1>>>0;m.HEAPU8.set(bufferAsUint8Array(buf),ptr);"
    "HEAPU8.subarray(ptr,ptr+buf.byteLength);new r(HEAPU32.buffer,s,o);HEAP8.slice(t,t+n);x>>2"
)


def test_unsigned__addresses_of_pyodides_script__are_unsigned() -> None:
    assert unsigned(SIGNED) == (
        "HEAPU32[(p>>>2)+0>>>0]=1;HEAPU16[(t+6>>>1)+0>>>0];(d>>>2)+n-1>>>0;"
        "m.HEAPU8.set(bufferAsUint8Array(buf),ptr>>>0);HEAPU8.subarray(ptr>>>0,(ptr>>>0)+buf.byteLength);"
        "new r(HEAPU32.buffer,s>>>0,o);HEAP8.slice(t>>>0,(t>>>0)+n);x>>2"
    )


def test_unsigned__script_of_another_release__raises() -> None:
    with pytest.raises(SetupError, match="SIGNED"):
        unsigned(SIGNED.replace("HEAP8.slice", "HEAP8.copy"))


def test_for_bundlers__modules_of_node_and_a_source_map__are_not_found_by_name() -> None:
    script = 'await import("node:fs/promises");import("ws");a.pyimport("sys");import(url)\n//# sourceMappingURL=a.map\n'
    assert for_bundlers(script) == (
        'await import(/* @vite-ignore */["node:fs/promises"].join());import(/* @vite-ignore */["ws"].join());'
        'a.pyimport("sys");import(url)\n\n'
    )


def test_for_bundlers__script_of_another_release__raises() -> None:
    with pytest.raises(SetupError, match="NODE_ONLY"):
        for_bundlers("import(url)")


def test_addresses__of_a_site__has_each_file_that_python_starts_from(tmp_path: Path) -> None:
    for name in ("pyodide/pyodide.mjs", "snapshot/memory.bin", "pyruntime-1.whl", "models/digits.onnx", "index.html"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    rows = [line.split('"')[1::2] for line in addresses(tmp_path).splitlines() if "new URL" in line]
    files = ["pyodide/pyodide.mjs", "pyruntime-1.whl", "snapshot/memory.bin"]
    assert rows == [[name, f"../{name}"] for name in files]


def test_fingerprint__content_name_or_order_changes__changes(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a").write_text("1")
    first = fingerprint(folder, "text")
    assert fingerprint(folder, "text") == first
    assert fingerprint("text", folder) != first
    (folder / "a").write_text("2")
    changed = fingerprint(folder, "text")
    assert changed != first
    (folder / "a").rename(folder / "b")
    assert fingerprint(folder, "text") not in (first, changed)


def test_stamp__other_value__does_not_count(tmp_path: Path) -> None:
    stamp = tmp_path / "deep" / "stamp"
    assert not stamped(stamp, "one")
    put_stamp(stamp, "one")
    assert stamped(stamp, "one")
    assert not stamped(stamp, "two")


def test_pins__npm_integrities__are_sha512() -> None:
    packages = [value for value in vars(pins).values() if isinstance(value, pins.NpmPackage)]
    assert len(packages) >= 5
    for package in packages:
        algorithm, digest = package.integrity.split("-", 1)
        assert algorithm == "sha512"
        assert len(base64.b64decode(digest)) == 64


def test_lock__of_npm__names_no_address_and_has_what_is_asked_for() -> None:
    text = (ROOT / "tools" / "npm" / "package-lock.json").read_text()
    assert "resolved" not in text and "http" not in text
    wanted = json.loads((ROOT / "tools" / "npm" / "package.json").read_text())
    for name, version in (wanted["dependencies"] | wanted["devDependencies"]).items():
        assert pins.locked(name).version == version.rpartition("@")[2]
    for release in pins.PYODIDES.values():
        assert pins.locked(release.npm).version == release.version


def test_fetch_numpy__wheel_in_the_folder_for_wheels__is_taken_by_its_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer, wheels = pins.PYODIDES["314"], tmp_path / "wheels"
    version, name, _ = newer.numpy
    for constant, value in (("PYODIDE", newer), ("NUMPY_VERSION", version), ("NUMPY_WHEEL", name)):
        monkeypatch.setattr(pins, constant, value)
    monkeypatch.setattr(pyodide, "WHEELS", wheels)
    wheels.mkdir()
    (wheels / name).write_bytes(b"another")
    monkeypatch.setattr(pins, "NUMPY_SHA256", hashlib.sha256(b"it").hexdigest())
    with pytest.raises(SetupError, match=f"on the CDN alone.* Put {name} into"):
        pyodide.fetch_numpy(tmp_path, try_cdn=False)
    (wheels / name).write_bytes(b"it")
    assert pyodide.fetch_numpy(tmp_path, try_cdn=False).read_bytes() == b"it"


def test_versions__in_javascript__are_those_of_the_project() -> None:
    """web/ has no build step, so it says by itself which wheel and which Pyodide belong to it."""
    source, memory = ((ROOT / "web" / n).read_text() for n in ("api/env.js", "snapshot/memory.js"))
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"export const version = '{version}';" in source
    for named in (source, memory):
        assert f"const pyodideVersion = '{pins.PYODIDE_VERSION}';" in named


@pytest.mark.parametrize(
    ("given", "native", "browser", "options"),
    [
        ((), ["tests"], ["e2e"], []),
        (("-k", "softmax"), ["tests"], ["e2e"], ["-k", "softmax"]),
        (("tests/tools/test_devkit.py", "-x"), ["tests/tools/test_devkit.py"], [], ["-x"]),
        (("e2e/ops/test_cast.py::test_x[a]", "tests/ops"), ["tests/ops"], ["e2e/ops/test_cast.py::test_x[a]"], []),
    ],
)
def test_chosen_tests__paths_and_options__paths_run_alone(
    given: tuple[str, ...], native: list[str], browser: list[str], options: list[str]
) -> None:
    assert chosen_tests(given) == ({"tests": native, "e2e": browser}, options)
