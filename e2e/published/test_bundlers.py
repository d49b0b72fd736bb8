"""The npm package in projects of other bundlers, as docs/install.md says, without configuration."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from e2e.harness.browser import guarded_page
from e2e.published.bundlers import check_page, install, npm_online, pack, run, served, snippets
from tests.sampling import ALL
from tools.devkit.server import Server
from tools.devkit.shell import ROOT

SLOW = pytest.mark.skipif(not ALL, reason="takes minutes: PYRUNTIME_SOAK=1, or python3 dev.py soak, runs it")
SECTION = "From npm"
HTML = """<!doctype html>
<html lang="en"><title>app</title><div id="app"></div><script defer src="/main.js"></script></html>"""
LAYOUT = """export default function Layout({ children }: { children: React.ReactNode }) {
  return <html lang="en"><body>{children}</body></html>;
}
"""


def snippet(language: str) -> str:
    """The one piece of code of this language in the section."""
    (code,) = [text for kind, text in snippets(SECTION) if kind == language]
    return code


def put_models(public: Path) -> None:
    """What the section says to put into `public`."""
    public.mkdir(exist_ok=True)
    shutil.copyfile(ROOT / "models" / "digits.onnx", public / "digits.onnx")
    shutil.copytree(ROOT / "models" / "austen", public / "austen")


@pytest.fixture(scope="module")
def tarball(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack(site, tmp_path_factory.mktemp("packed"))


@pytest.fixture(scope="module")
def vite(tarball: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project that the section makes, with pinned versions in place of the latest."""
    folder = install("vite", tmp_path_factory.mktemp("vite"), tarball)
    create, enter, add = snippet("sh").splitlines()
    assert (enter, add) == ("cd app", f"npm install ../{tarball.name}")
    template = re.fullmatch(r"npm create vite@latest app -- --template (\S+)", create)
    assert template
    package = f"vite@{json.loads((folder / 'package.json').read_text())['config']['create-vite']}"
    npm_online("--yes", "create", package, "app", "--", "--template", template[1], "--no-interactive", cwd=folder)
    (folder / "app" / "src" / "main.ts").write_text(snippet("ts"))
    put_models(folder / "app" / "public")
    return folder / "app"


def test_vite__dev__runs_session_widget_and_text(browser: Browser, vite: Path) -> None:
    with served(vite, "vite", "--host", "127.0.0.1", "--port", "{port}", "--strictPort") as url:
        check_page(browser, url)


def test_vite__build_and_preview__runs_session_widget_and_text(browser: Browser, vite: Path) -> None:
    run(vite, "tsc")
    run(vite, "vite", "build")
    with served(vite, "vite", "preview", "--host", "127.0.0.1", "--port", "{port}", "--strictPort") as url:
        check_page(browser, url)


@SLOW
def test_webpack__build__runs_session_widget_and_text(browser: Browser, tarball: Path, tmp_path: Path) -> None:
    install("webpack", tmp_path, tarball)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "index.js").write_text(snippet("ts").replace(")!", ")"))
    run(tmp_path, "webpack", "--mode", "production")
    (tmp_path / "dist" / "index.html").write_text(HTML)
    put_models(tmp_path / "dist")
    with Server({"/": tmp_path / "dist"}, policy=None) as server:
        check_page(browser, server.url)


@pytest.fixture(scope="module")
def nextjs(tarball: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = install("next", tmp_path_factory.mktemp("next"), tarball)
    (folder / "app").mkdir()
    (folder / "app" / "layout.tsx").write_text(LAYOUT)
    (folder / "app" / "page.tsx").write_text(snippet("tsx"))
    put_models(folder / "public")
    return folder


@SLOW
def test_next__dev__runs_session_widget_and_text(browser: Browser, nextjs: Path) -> None:
    with served(nextjs, "next", "dev", "-H", "127.0.0.1", "-p", "{port}") as url:
        check_page(browser, url)


@SLOW
def test_next__build_and_start__runs_session_widget_and_text(browser: Browser, nextjs: Path) -> None:
    run(nextjs, "next", "build")
    with served(nextjs, "next", "start", "-H", "127.0.0.1", "-p", "{port}") as url:
        check_page(browser, url)


def test_base_url__of_a_copy__is_where_everything_comes_from(browser: Browser, site: Path, tmp_path: Path) -> None:
    """The script is elsewhere than its files, as a bundler that copies none leaves it."""
    setting = snippet("js").replace("'pyruntime'", "'/moved/pyruntime.js'")
    (tmp_path / "page.js").write_text(setting)
    shutil.copyfile(site / "web" / "pyruntime.js", tmp_path / "pyruntime.js")
    (tmp_path / "index.html").write_text("<!doctype html><script type=module src=/moved/page.js></script>")
    with (
        Server({"/moved/": tmp_path, "/pyruntime/": site}) as server,
        guarded_page(browser, server.url) as (page, guard),
    ):
        guard.allow("favicon|404")
        page.goto(f"{server.url}moved/index.html")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        assert page.evaluate(
            """async () => {
                const { InferenceSession } = await import('/moved/pyruntime.js');
                const session = await InferenceSession.create('/pyruntime/models/digits.onnx');
                return session.inputNames;
            }"""
        ) == ["image"]
        assert [url for url in asked if not url.startswith(f"{server.url}pyruntime/")] == []


def test_base_url__missing_where_the_bundler_copied_nothing__error_says_to_set_it(
    browser: Browser, site: Path, tmp_path: Path
) -> None:
    (tmp_path / "index.html").write_text("<!doctype html>")
    shutil.copyfile(site / "web" / "pyruntime.js", tmp_path / "pyruntime.js")
    with Server({"/": tmp_path}) as server, guarded_page(browser, server.url) as (page, guard):
        guard.allow("404|worker")
        page.goto(server.url)
        message = page.evaluate(
            """() => import('/pyruntime.js').then(({ preload }) => preload()).catch(({ message }) => message)"""
        )
        assert re.search(r"/worker\.js cannot be fetched \(HTTP status 404\).*set env\.baseUrl", message), message


def test_plain_html__of_another_origin__runs(browser: Browser, site: Path, tmp_path: Path) -> None:
    with Server({"/": site}, shared=True) as home:
        (tmp_path / "index.html").write_text(snippet("html").replace("https://YOUR-SITE/", home.url))
        with (
            Server({"/": tmp_path}, policy=None) as other,
            guarded_page(browser, "http://127.0.0.1:") as (page, guard),
        ):
            guard.allow("favicon|404")
            page.goto(other.url)
            expect(page.locator("output")).to_have_text("10 probabilities")
            assert all(worker.url.startswith(f"blob:{other.url}") for worker in page.workers)
            assert len(page.workers) == 2
