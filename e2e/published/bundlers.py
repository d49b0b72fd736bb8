"""Projects of other bundlers that have the packed npm package: made in temporary folders, built, served."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from e2e.harness.browser import guarded_page
from tools.devkit.shell import ROOT

PROJECTS = Path(__file__).with_name("projects")
DOCUMENT = ROOT / "docs" / "install.md"
INSTALL_S, START_S = 300, 120


def npm(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = ["npm", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=INSTALL_S)


def pack(site: Path, folder: Path) -> Path:
    """The npm package of the site, as a tarball in `folder`."""
    packed = npm("pack", site, "--pack-destination", folder, "--ignore-scripts", cwd=folder)
    assert packed.returncode == 0, packed.stderr
    (tarball,) = folder.glob("*.tgz")
    return tarball


def install(name: str, folder: Path, *more: Path) -> Path:
    """Put what PROJECTS/`name` pins, and the tarballs `more`, into node_modules/ of `folder`, which is returned.

    The test is skipped where npm does not answer.
    """
    for file in (PROJECTS / name).iterdir():
        shutil.copyfile(file, folder / file.name)
    npm_online("install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", *more, cwd=folder)
    return folder


UNREACHABLE = re.compile(r"\b(ENOTFOUND|ECONNREFUSED|ECONNRESET|ETIMEDOUT|EAI_AGAIN|ENOTCACHED|E40[34]|E5\d\d)\b")


def npm_online(*arguments: str | Path, cwd: Path) -> None:
    """Run npm, which must succeed; the test is skipped where its registry does not answer."""
    try:
        done = npm(*arguments, cwd=cwd)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm {arguments[0]} has not ended after {INSTALL_S} s: its registry is too slow")
    if done.returncode and UNREACHABLE.search(done.stderr):
        pytest.skip(f"npm's registry does not answer: {done.stderr.strip().splitlines()[0]}")
    assert done.returncode == 0, done.stderr


def snippets(heading: str) -> list[tuple[str, str]]:
    """Language and text of each block of code in the section of DOCUMENT below `heading`."""
    section = DOCUMENT.read_text().split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"```(\w+)\n(.*?)```", section, re.S)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def served(folder: Path, *command: str) -> Iterator[str]:
    """The URL of a server that `command` of node_modules/.bin starts in `folder`; '{port}' in it is the port."""
    port = free_port()
    words = [word.format(port=port) for word in command]
    environment = {**os.environ, "NEXT_TELEMETRY_DISABLED": "1"}
    with (folder / f"{port}.log").open("w+") as log:
        server = subprocess.Popen(
            [binary(folder, words[0]), *words[1:]], cwd=folder, stdout=log, stderr=log, env=environment
        )
        url = f"http://127.0.0.1:{port}/"
        try:
            wait_for(url, server)
            yield url
        except BaseException:
            log.seek(0)
            print(log.read())
            raise
        finally:
            server.terminate()
            server.wait(30)


def wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    """Return when `url` answers.

    Raises:
        TimeoutError: it does not within START_S.
    """
    end = time.monotonic() + START_S
    while time.monotonic() < end and server.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=START_S).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.2)
    raise TimeoutError(f"{url} does not answer: the server's status is {server.poll()}")


def binary(folder: Path, name: str) -> str:
    """A program of the nearest node_modules/ above `folder`."""
    for above in (folder, *folder.parents):
        if (found := above / "node_modules" / ".bin" / name).exists():
            return str(found)
    raise FileNotFoundError(name)


def run(folder: Path, *command: str) -> str:
    """What a program of node_modules/.bin prints, which must succeed."""
    environment = {**os.environ, "NEXT_TELEMETRY_DISABLED": "1"}
    done = subprocess.run(
        [binary(folder, command[0]), *command[1:]],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def check_page(browser: Browser, url: str) -> None:
    """The page runs what DOCUMENT shows, from the snapshot, in a worker, without requests to other origins."""
    with guarded_page(browser, url) as (page, guard):
        guard.allow("favicon|404")
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.goto(url)
        page.wait_for_function("() => document.querySelector('output')?.textContent", timeout=180_000)
        shown = page.locator("output").text_content() or ""
        assert re.fullmatch(r"10 probabilities; It is a truth\b.+", shown, re.S), shown
        page.locator("pyruntime-model .pad").wait_for(timeout=180_000)
        assert len(page.workers) == 2, "Python's, and the one that downloads"
        assert not [text for text in said if "without its snapshot" in text]
