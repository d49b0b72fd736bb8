"""Every bad model is refused with the exception it names, within two seconds and 64 MiB."""

from __future__ import annotations

import asyncio
import time
import tracemalloc

import pytest

from pyruntime import errors
from pyruntime.session import InferenceSession, SessionOptions
from tests.bad_models.case import Case
from tests.bad_models.corpus import cases
from tests.session.doubles import FaultyDevice, on_device

SECONDS = 2.0
"""Of processor time: a busy machine does not make a model bad."""
BYTES = 64 << 20


def options_for(case: Case) -> SessionOptions:
    options = SessionOptions()
    for name, value in case.limits.items():
        options.add_session_config_entry(f"pyruntime.limits.{name}", str(value))
    if case.files:
        names, contents = list(case.files), list(case.files.values())
        options.add_external_initializers_from_files_in_memory(names, contents, [len(c) for c in contents])
    return options


async def use(case: Case) -> None:
    session = await InferenceSession.create(case.data, options_for(case))
    try:
        await session.run_async(None, case.feeds)
    finally:
        session.release()


def check(case: Case) -> None:
    tracemalloc.start()
    began = time.process_time()
    try:
        with pytest.raises(errors.OrtError) as caught:
            asyncio.run(use(case))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    seconds = time.process_time() - began
    message = str(caught.value)
    assert type(caught.value) is getattr(errors, case.error), message
    assert case.says in message
    assert "bug of pyruntime" not in message
    assert len(message) < 5000
    assert peak < BYTES + len(case.data), f"{peak:,} bytes"
    assert seconds < SECONDS


def test_corpus__has_at_least_120_cases() -> None:
    assert len(cases()) >= 120


@pytest.mark.parametrize("name", cases())
def test_bad_model__on_the_host__raises_what_it_names(name: str) -> None:
    check(cases()[name])


@pytest.mark.parametrize("name", [name for name, case in cases().items() if not case.host_only])
def test_bad_model__planned_for_a_device__raises_what_it_names_and_frees_everything(name: str) -> None:
    device = FaultyDevice()
    with on_device(device):
        check(cases()[name])
    assert device.ledger.live == {} and not device.recordings
