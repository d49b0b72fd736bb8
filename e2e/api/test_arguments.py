"""Wrong arguments of public functions: the error names the argument, what it must be, and what it is."""

from __future__ import annotations

import pytest

from e2e.harness.script import Script
from tests.session import models

CREATE = [
    ("InferenceSession.create()", "the model must be a URL", "not undefined"),
    ("InferenceSession.create(null)", "the model must be a URL", "not null"),
    ("InferenceSession.create(5)", "the model must be a URL", "not 5"),
    ("InferenceSession.create({})", "the model must be a URL", "not an object (Object)"),
    ("InferenceSession.create(null, 0)", "the model, with a byteOffset, must be an ArrayBuffer", "not null"),
    ("InferenceSession.create(bytes, 'webgpu')", "options must be an object", "not 'webgpu'"),
    ("InferenceSession.create(bytes, { signal: {} })", "options.signal must be an AbortSignal", "not an object"),
    ("InferenceSession.create(bytes, { onProgress: 1 })", "options.onProgress must be a function", "not 1"),
    (
        "InferenceSession.create(bytes, { executionProviders: 'webgpu' })",
        "executionProviders must be an array",
        "not 'webgpu'",
    ),
    ("InferenceSession.create(bytes, { externalData: 'w.bin' })", "externalData must be an array", "not 'w.bin'"),
    (
        "InferenceSession.create(bytes, { externalData: [null] })",
        "an element of externalData must be a URL",
        "not null",
    ),
    (
        "InferenceSession.create(bytes, { externalData: [{ path: 'w' }] })",
        "externalData 'w' must be a URL",
        "not undefined",
    ),
    ("InferenceSession.create(bytes, { plan: 5 })", "plan must be a URL", "not 5"),
    ("TextGenerator.create()", "the folder must be a URL", "not undefined"),
    ("TextGenerator.create(null)", "the folder must be a URL", "not null"),
    ("TextGenerator.create('/x', 'q4')", "options must be an object", "not 'q4'"),
    ("preload(5)", "options must be an object", "not 5"),
    ("preload({ onProgress: 'x' })", "options.onProgress must be a function", "not 'x'"),
]
TENSOR = [
    ("Tensor.fromImage()", "image must be an ImageData", "not undefined"),
    ("Tensor.fromImage(null)", "image must be an ImageData", "not null"),
    ("Tensor.fromImage(5)", "image must be an ImageData", "not 5"),
    ("Tensor.fromImage({})", "image must be an ImageData", "not an object (Object)"),
    ("Tensor.fromImage(new ImageData(1, 1), 'RGB')", "options must be an object", "not 'RGB'"),
    ("Tensor.fromGpuBuffer(null, { dims: [1] })", "gpuBuffer must be a GPUBuffer", "not null"),
    ("Tensor.fromGpuBuffer({}, null)", "dims must be an array", "not undefined"),
    ("Tensor.fromPinnedBuffer('float32', null)", "data must be an array", "not null"),
    ("new Tensor(null)", "data must be a typed array", "not null"),
    ("new Tensor('float32', null)", "data: a float32 tensor needs Float32Array", "got null"),
    ("new Tensor('float32')", "data: a float32 tensor needs Float32Array", "got undefined"),
    ("new Tensor('string', null)", "data of a string tensor must be an array of strings", "not null"),
    ("new Tensor('float32', [1], 1)", "dims must be an array", "not 1"),
    ("new Tensor('float32', [1], '1')", "dims must be an array", "not '1'"),
    ("new Tensor('float32', [1]).reshape()", "dims must be an array", "not undefined"),
    ("new Tensor('float32', [1], [1, 1, 1, 1]).toImageData('RGB')", "options must be an object", "not 'RGB'"),
]
RUN = [
    ("session.run()", "feeds must be an object of tensors", "not undefined"),
    ("session.run(null)", "feeds must be an object of tensors", "not null"),
    ("session.run([x])", "feeds must be an object of tensors", "not an array"),
    ("session.run({ x: undefined })", "input 'x' must be a Tensor", "not undefined"),
    ("session.run({ x: [1] })", "input 'x' must be a Tensor", "not an array"),
    ("session.run({ x }, 5)", "fetches must be an array of output names", "not 5"),
    ("session.run({ x }, null)", "fetches must be an array of output names", "not null"),
    ("session.run({ x }, [null])", "an element of fetches must be a string", "not null"),
    ("session.run({ x }, { y: null, z: 5 })", "fetches.z must be a Tensor or null", "not 5"),
    ("session.run({ x }, ['y'], 'tag')", "options must be an object", "not 'tag'"),
    ("session.run({ x }, { signal: 5 })", "options.signal must be an AbortSignal", "not 5"),
]


@pytest.mark.parametrize(("call", "expected", "got"), [*CREATE, *TENSOR])
def test_function__wrong_argument__is_named_with_expected_and_got(
    script: Script, call: str, expected: str, got: str
) -> None:
    said = script(
        "const { TextGenerator } = await import('/src/web/pyruntime.js'); const bytes = decode(model);"
        f"return failure(async () => {call});",
        model=models.double(),
    )
    assert said["name"] == "TypeError" and said["message"].startswith(expected) and got in said["message"], said


def test_run__wrong_arguments__are_named_and_the_next_run_is_right(script: Script) -> None:
    calls = ", ".join(f"() => {call}" for call, _, _ in RUN)
    said, y = script(
        f"""
        const session = await InferenceSession.create(decode(model));
        const x = new Tensor('float32', Float32Array.of(1, -2, 3, -4), [1, 4]);
        const said = [];
        for (const call of [{calls}]) said.push(await failure(call));
        const {{ y }} = await session.run({{ x }}, undefined, null);
        await session.release();
        return [said, [...y.data]];
        """,
        model=models.double(),
    )
    for error, (call, expected, got) in zip(said, RUN, strict=True):
        assert error["name"] == "TypeError" and expected in error["message"] and got in error["message"], (call, error)
    assert y == [2, 0, 6, 0]


def test_run__terminate__is_read_when_the_run_is_asked_for(script: Script) -> None:
    found = script(
        """
        const session = await InferenceSession.create(decode(model));
        const x = new Tensor('float32', Float32Array.of(1, -2, 3, -4), [1, 4]);
        const said = await failure(() => session.run({ x }, { terminate: true }));
        const fetched = await failure(() => session.run({ x }, ['y'], { terminate: true }));
        const { y } = await session.run({ x }, { terminate: false });
        const options = { terminate: false };
        const running = session.run({ x }, options);
        options.terminate = true; // what the options are when the run is asked for counts
        const { y: same } = await running;
        const later = await failure(() => session.run({ x }, options));
        await session.release();
        return [said.name, said.message, fetched.name, [...y.data], [...same.data], later.name];
        """,
        model=models.double(),
    )
    assert found == ["Fail", "the run was ended by its option `terminate`", "Fail", [2, 0, 6, 0], [2, 0, 6, 0], "Fail"]
