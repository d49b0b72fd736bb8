"""A GPU device that is lost in a browser while tensors are on it: in runs, in their feeds, in texts."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from e2e.harness.python import BrowserPython
from e2e.harness.script import Script, watched
from e2e.harness.sessions import run as run_python
from e2e.harness.writing import Writing
from tests.session import models

TOOLS = """
const load = () => InferenceSession.create(decode(model), { preferredOutputLocation: 'gpu-buffer' });
const feeds = (i = 0) => ({ x: new Tensor('float32', Float32Array.of(i, 1, 2, 3), [1, 4]) });
const end = (error) => `${error.name}: ${error.message}`;
const read = async (y, i = 0) => {
  const data = [...await y.getData(true)];
  return String(data) === String([2 * i, 2, 4, 6]) ? 'right' : `wrong: ${data}`;
};
const run = (i = 0) => session.run(feeds(i)).then(({ y }) => read(y, i)).catch(end);
"""
GONE = "DeviceLost: "


@pytest.fixture
def script(watched_script: Script) -> Script:
    return watched_script


def devices(script: Script) -> int:
    count: int = script.worker.evaluate("() => gpuDevices.length")
    return count


def test_loss__while_runs_leave_outputs_on_the_gpu__each_is_right_or_device_lost(script: Script) -> None:
    script(
        TOOLS + "globalThis.session = await load(); for (let i = 0; i < 3; i++) await run(i);", model=models.double()
    )
    for submit in (1, 2, 5, 12, 13, 20):  # each run has one, and so has reading its output
        script.lose_device(submit)
        ends = script(TOOLS + "return Promise.all([...Array(12).keys()].map(run))", model=b"")
        assert all(found == "right" or found.startswith(GONE) for found in ends), ends
        assert script(TOOLS + "return [await run(1), await run(2), await run(3)]", model=b"") == ["right"] * 3
    script("await session.release()")


def test_loss__tensors_that_were_on_the_gpu__are_device_lost_and_the_new_device_stays(script: Script) -> None:
    script(
        TOOLS + "globalThis.session = await load(); globalThis.old = []; for (let i = 0; i < 3; i++) {"
        " await run(i); old.push((await session.run(feeds(i))).y); }",
        model=models.double(),
    )
    script.lose_device()
    assert script(TOOLS + "return [await run(1), await run(2), await run(3)]", model=b"") == ["right"] * 3
    count = devices(script)
    found = script(
        TOOLS
        + """
        const ends = [];
        for (let k = 0; k < 3; k++) {
          ends.push(await session.run({ x: old[k] }).then(() => 'an answer', end));
          ends.push(await run(k));
        }
        for (const tensor of old) ends.push(await tensor.getData().then(() => 'data', end));
        for (const tensor of old) tensor.dispose();
        return [...ends, await run(5), await run(6)];
        """,
        model=b"",
    )
    assert found[1:6:2] == ["right"] * 3 and found[9:] == ["right"] * 2, found
    assert all(each.startswith(GONE) and "run the model" in each for each in (*found[0:6:2], *found[6:9])), found
    assert devices(script) == count, "feeding what was lost costs no other device"
    script("await session.release()")


def test_loss__no_adapter_any_more__twenty_runs_fail_with_the_questions_of_one(script: Script) -> None:
    script(TOOLS + "globalThis.session = await load(); await run(); await run();", model=models.double())
    script.worker.evaluate("""() => {
      globalThis.asked = 0;
      globalThis.requestAdapter = GPU.prototype.requestAdapter;
      GPU.prototype.requestAdapter = async () => { asked += 1; return null; };
    }""")
    try:
        script.lose_device(3)
        ends = script(TOOLS + "return Promise.all([...Array(20).keys()].map(run))", model=b"")
        asked = script.worker.evaluate("() => { const count = asked; asked = 0; return count; }")
        alone = script(TOOLS + "return run()", model=b"")
        asked_alone = script.worker.evaluate("() => asked")
    finally:
        script.worker.evaluate("() => { GPU.prototype.requestAdapter = requestAdapter; }")
    failed = [found for found in ends if found != "right"]
    assert len(failed) > 1
    read = "run the models that made them again"  # the run had ended, and its output was read
    assert "there is no other" in alone
    assert all(found.startswith(GONE) and ("there is no other" in found or read in found) for found in failed), ends
    assert asked <= 2 * asked_alone
    assert script(TOOLS + "return [await run(1), await run(2)]", model=b"") == ["right"] * 2
    script("await session.release()")


def test_loss__while_a_text_is_written__it_is_whole_or_device_lost_and_the_next_is_whole(
    browser: Browser, site_url: str
) -> None:
    with watched(browser, site_url, Script) as plain:
        script = Writing(plain.page, plain.guard)  # what loads the model comes after what watches the device
        whole = script(
            "return textOf(await write('She was', { temperature: 0, maxNewTokens: 48, endTokens: [] }));", prompt=""
        )
        for after in (1, 5, 20):
            found = script(
                """
                globalThis.pieces = [];
                globalThis.reached = new Promise((done) => { globalThis.letKnow = done; });
                globalThis.text = (async () => {
                  const options = { temperature: 0, maxNewTokens: 48, endTokens: [] };
                  for await (const piece of generator.generate('She was', options)) {
                    pieces.push(piece);
                    if (pieces.length === after) letKnow();
                  }
                  return textOf(pieces);
                })().catch((error) => `${error.name}: ${error.message}`);
                await reached;
                """,
                after=after,
            )
            script.lose_device()
            found = script("return text")
            assert found == whole or found.startswith(GONE), found
            again = script(
                "return textOf(await write('She was', { temperature: 0, maxNewTokens: 48, endTokens: [] }));", prompt=""
            )
            assert again == whole
        script.guard.allow("RuntimeWarning: the GPU device was lost|await self._replace|pyruntime: |pyruntime chooses")


def test_released_sessions__pythons_collector_rests__leave_no_model(python_in_browser: BrowserPython) -> None:
    left = run_python(
        python_in_browser,
        """
        import gc, js, weakref
        from pyodide.ffi import can_run_sync, to_js
        buffer = lambda: js.Uint8Array.new(to_js(model)).buffer
        x = np.ones((2, 160), np.float32)
        left = {}

        async def right(session):
            for rows in (2, 3, 4):
                await session.run_async(None, {"x": np.ones((rows, 160), np.float32)})

        async def wrong(session):
            for value in (np.ones((2, 160), np.int64), None):
                try:
                    await session.run_async(None, {"x": value})
                except errors.OrtError:
                    pass
                if can_run_sync():
                    try:
                        session.run(None, {"x": value})
                    except errors.OrtError:
                        pass

        async def terminated(session):
            chosen = RunOptions()
            run = asyncio.ensure_future(session.run_async(None, {"x": x}, chosen))
            await asyncio.sleep(0)
            chosen.terminate = True
            try:
                await run
            except errors.OrtError:
                pass
            finally:
                del run  # its exception has this frame in its traceback

        async def lost(session):
            await session.run_async(None, {"x": x})
            session._program.device.gpu_device.destroy()
            await session.run_async(None, {"x": x})

        async def used(use, release):
            session = await InferenceSession.create(buffer())
            source = weakref.ref(session._model.graph.constants["w"].source)
            await use(session)
            if release:
                session.release()
            return source

        gc.collect()
        gc.disable()
        for use in (right, wrong, terminated, lost):
            for release in (True, False) if use is not terminated else (True,):  # Pyodide keeps the caller
                source = await used(use, release)
                for _ in range(200):  # what the browser was asked for holds the run until it answers
                    if source() is None:
                        break
                    await asyncio.sleep(0.01)
                left[f"{use.__name__} {release}"] = source() is not None
        gc.enable()
        left
        """,
        model=models.staged(),
    )
    assert left == dict.fromkeys(left, False) and len(left) == 7
