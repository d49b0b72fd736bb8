"""device/webgpu/advice.py: each browser is told its own way to WebGPU."""

from __future__ import annotations

import pytest

from pyruntime.device.webgpu.advice import no_adapter, no_webgpu

AGENTS = {
    "firefox": "Mozilla/5.0 (X11; Linux x86_64; rv:153.0) Gecko/20100101 Firefox/153.0",
    "chrome": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36",
    "edge": "Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0 Safari/537.36 Edg/156.0",
    "safari": "Mozilla/5.0 (Macintosh) AppleWebKit/605.1 (KHTML, like Gecko) Version/18.0 Safari/605.1",
    "webkitgtk": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/605.1 (KHTML, like Gecko) Version/26.0 Safari/605.1",
    "": "Something/1.0",
}
WAYS = {"firefox": "about:config", "chrome": "chrome://", "edge": "edge://", "safari": "Safari"}
WAYS |= {"webkitgtk": "browser", "": ""}


@pytest.mark.parametrize("browser", AGENTS)
def test_advice__each_browser__names_its_own_way_and_no_others(browser: str) -> None:
    for said in (no_webgpu(AGENTS[browser], True, False), no_adapter(AGENTS[browser])):
        assert WAYS[browser] in said
        assert not any(way in said for way in ("about:config", "chrome://", "edge://") if way != WAYS[browser])
        assert said.endswith("use the CPUExecutionProvider")


def test_advice__firefox_in_a_worker__names_the_workers_preference() -> None:
    assert "dom.webgpu.workers.enabled" in no_webgpu(AGENTS["firefox"], True, True)
    assert "workers" not in no_webgpu(AGENTS["firefox"], True, False)


def test_advice__page_that_is_not_secure__is_told_so_first() -> None:
    assert "https" in no_webgpu(AGENTS["chrome"], False, False)
    assert "chrome://" not in no_webgpu(AGENTS["chrome"], False, False)
