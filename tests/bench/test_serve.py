"""bench/serve.py: files at a rate, when their last byte was sent, what pages post."""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.serve import Server, clock_of_gpu, visit


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.bin").write_bytes(bytes(2_000_000))
    (tmp_path / "outside").write_text("not to be seen")
    with Server(tmp_path / "folder") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def get(server: Server, path: str) -> bytes:
    with urllib.request.urlopen(f"{server.url}/{path}") as response:
        body: bytes = response.read()
    return body


def test_paced__a_rate__takes_at_least_its_time_and_tells_when_it_ended(server: Server) -> None:
    assert json.loads(get(server, "sent/a.bin")) is None
    begin = time.time()
    assert get(server, "paced/10/a.bin") == bytes(2_000_000)
    sent = json.loads(get(server, "sent/a.bin")) / 1000
    assert begin + 0.2 <= sent <= time.time()
    assert get(server, "a.bin") == bytes(2_000_000)


@pytest.mark.parametrize("path", ["paced/10/absent.bin", "paced/10/../outside", "paced/10/%2e%2e/outside", "absent"])
def test_get__what_is_not_in_the_folder__is_not_found(server: Server, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(server, path)


def test_get__a_range__gives_these_bytes_with_their_place(server: Server) -> None:
    (server.folder / "b.bin").write_bytes(bytes(range(100)))
    for asked, place, want in [
        ("bytes=10-19", "bytes 10-19/100", range(10, 20)),
        ("bytes=95-", "bytes 95-99/100", range(95, 100)),
    ]:
        with urllib.request.urlopen(
            urllib.request.Request(f"{server.url}/b.bin", headers={"Range": asked})
        ) as response:
            assert (response.status, response.headers["Content-Range"]) == (206, place)
            assert response.read() == bytes(want)


def test_visit__a_page_that_posts__gives_what_it_posted(server: Server, tmp_path: Path) -> None:
    script = tmp_path / "browser"
    script.write_text(
        f"#!{sys.executable}\n"
        "import sys, urllib.request\n"
        "assert '--headless=new' in sys.argv and '--own' in sys.argv\n"
        "urllib.request.urlopen(sys.argv[-1].replace('page.html', 'result/x'), b'[1]').read()\n"
    )
    script.chmod(0o755)
    assert visit(server, str(script), "page.html", 30, ["--own"]) == b"[1]"
    script.write_text(f"#!{sys.executable}\n")
    assert visit(server, str(script), "page.html", 0.1, ["--own"]) is None


def test_clock_of_gpu__not_wanted__is_not_queried() -> None:
    with clock_of_gpu(False) as seen:
        pass
    assert seen == []
