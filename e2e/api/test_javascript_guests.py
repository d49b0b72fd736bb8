"""web/pyruntime.js for libraries that were written for onnxruntime-web: what they feed, assign and ask for."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

from e2e.api.test_javascript_api import model_bytes, tensor_info
from e2e.harness.script import Script

DOUBLE = model_bytes([helper.make_node("Add", ["x", "x"], ["y"])], [tensor_info("x", ["n"])], [tensor_info("y", ["n"])])
SAME = model_bytes(
    [helper.make_node("Identity", ["x"], ["y"])], [tensor_info("x", ["a", "b"])], [tensor_info("y", ["a", "b"])]
)
CACHE = model_bytes(
    [helper.make_node("Concat", ["past", "new"], ["present"], axis=2)],
    [tensor_info("past", ["batch_size", 2, "p", 4]), tensor_info("new", ["batch_size", 2, "s", 4])],
    [tensor_info("present", ["batch_size", 2, "t", 4])],
)
PRODUCT = model_bytes(
    [helper.make_node("MatMul", ["a", "b"], ["c"])],
    [tensor_info("a", ["m", "k"]), tensor_info("b", ["k", "n"])],
    [tensor_info("c", ["m", "n"])],
)


@pytest.mark.parametrize(
    "tensor",
    [
        "{ type: 'float32', dims: [3], data: new Float32Array([1, 2, 3]) }",
        "Object.freeze({ type: 'float32', dims: Object.freeze([3]), data: [1, 2, 3], location: 'cpu' })",
        "new Proxy(new Tensor('float32', [1, 2, 3], [3]), { get: (tensor, key) => tensor[key] })",
    ],
)
def test_run__tensor_of_another_class__is_taken_for_what_it_says(script: Script, tensor: str) -> None:
    found = script(
        f"""
        const session = await InferenceSession.create(decode(model));
        const {{ y }} = await session.run({{ x: {tensor} }});
        await session.release();
        return [y instanceof Tensor, ...y.data];
        """,
        model=DOUBLE,
    )
    assert found == [True, 2, 4, 6]


def test_run__large_tensor_of_another_class__arrives_whole(script: Script) -> None:
    found = script(
        """
        const session = await InferenceSession.create(decode(model));
        const data = new Float32Array(1 << 20).map((_, i) => i);
        const { y } = await session.run({ x: { type: 'float32', dims: [data.length], data } });
        await session.release();
        return [data.length, y.data.every((value, i) => value === 2 * i)];
        """,
        model=DOUBLE,
    )
    assert found == [1 << 20, True]


def test_run__target_of_another_class__is_filled(script: Script) -> None:
    found = script(
        """
        const session = await InferenceSession.create(decode(model));
        const target = { type: 'float32', dims: [2], data: new Float32Array(2) };
        const { y } = await session.run({ x: new Tensor('float32', [1, 2], [2]) }, { y: target });
        await session.release();
        return [y === target, ...target.data];
        """,
        model=DOUBLE,
    )
    assert found == [True, 2, 4]


def test_run__object_that_is_no_tensor__is_refused(script: Script) -> None:
    found = script(
        """
        const session = await InferenceSession.create(decode(model));
        const said = [];
        for (const x of [{ dims: [1], data: [1] }, { type: 'float32', dims: [1] }, 5, 'text']) {
            said.push((await failure(() => session.run({ x }))).message);
        }
        await session.release();
        return said;
        """,
        model=DOUBLE,
    )
    given = ["an object (Object)", "an object (Object)", "5", "'text'"]
    assert found == [f"input 'x' must be a Tensor, not {value}" for value in given]


@pytest.mark.parametrize("place", ["cpu", "gpu-buffer"])
def test_dims__assigned__are_those_of_the_next_run(script: Script, place: str) -> None:
    found = script(
        """
        const session = await InferenceSession.create(decode(model), { preferredOutputLocation: place });
        const { y } = await session.run({ x: new Tensor('float32', [1, 2, 3, 4, 5, 6], [2, 3]) });
        y.dims = [3, 2];
        const again = await session.run({ x: y });
        const data = [...await again.y.getData()];
        y.dims = [4, 2];
        const { message } = await failure(() => session.run({ x: y }));
        y.dims = [1, 6];
        const last = await session.run({ x: y });
        await session.release();
        return { place: y.location, dims: [again.y.dims, last.y.dims], data, message };
        """,
        model=SAME,
        place=place,
    )
    assert found["place"] == place
    assert found["dims"] == [[3, 2], [1, 6]]
    assert found["data"] == [1, 2, 3, 4, 5, 6]
    assert "[4,2]" in found["message"] and "6 elements" in found["message"]


@pytest.mark.parametrize("place", ["cpu", "gpu-buffer"])
def test_cache__empty_at_first__grows_by_concatenation(script: Script, place: str) -> None:
    found = script(
        """
        const session = await InferenceSession.create(decode(model), {
            preferredOutputLocation: { present: place, 'present.0.key': 'gpu-buffer' } });
        session.config = { dtype: 'fp32' }; // as transformers.js notes it
        let past = new Tensor('float32', [], [1, 2, 0, 4]);
        for (let step = 1; step <= 3; step += 1) {
            const data = Array.from({ length: 8 * step }, (_, i) => 100 * step + i);
            const { present } = await session.run({ past, new: new Tensor('float32', data, [1, 2, step, 4]) });
            past.dispose();
            past = present;
        }
        const facts_ = [past.location, past.dims, (await past.getData()).length, session.inputMetadata[0].shape];
        await session.release();
        return [...facts_, session.config.dtype];
        """,
        model=CACHE,
        place=place,
    )
    assert found == [place, [1, 2, 6, 4], 48, ["batch_size", 2, "p", 4], "fp32"]


def test_create__options_and_providers_that_are_not_here__are_passed_over(script: Script) -> None:
    script.guard.allow("executionProviders: webnn")
    found = script(
        """
        const options = { executionProviders: ['webnn-npu', { name: 'webnn' }, 'wasm'], nothingOfOurs: { a: 1 },
                          enableMemPattern: false, preferredOutputLocation: { nope: 'gpu-buffer' } };
        const session = await InferenceSession.create(decode(model), options);
        const { y } = await session.run({ x: new Tensor('float32', [4], [1]) });
        const { providers } = await session.summary();
        await session.release();
        return [...y.data, ...providers];
        """,
        model=DOUBLE,
    )
    assert found == [8, "CPUExecutionProvider"]


def test_env__as_onnxruntime_webs__has_what_libraries_set(script: Script) -> None:
    found = script(
        """
        env.wasm.proxy = false;
        env.webgpu.powerPreference = 'high-performance';
        env.logLevel = 'warning';
        const copy = { ...env };
        return [env.wasm.proxy, copy.webgpu.powerPreference, 'web' in env.versions, env.wasm.wasmPaths ?? null];
        """
    )
    assert found == [False, "high-performance", False, None]


@pytest.mark.parametrize(
    ("setting", "providers", "side", "on_gpu"),
    [
        ("1 << 19", "undefined", 8, False),
        ("1 << 19", "['webgpu', 'wasm']", 8, False),
        ("1 << 19", "['webgpu']", 8, True),
        ("1 << 19", "undefined", 256, True),
        ("0", "undefined", 8, True),
    ],
)
def test_small_run__by_predicted_work__stays_off_the_gpu(
    script: Script, setting: str, providers: str, side: int, on_gpu: bool
) -> None:
    script.watch()
    found = script(
        f"""
        env.hostWork = {setting};
        const session = await InferenceSession.create(decode(model), {{ executionProviders: {providers} }});
        const ones = () => new Tensor('float32', new Float32Array(side * side).fill(1), [side, side]);
        const {{ c }} = await session.run({{ a: ones(), b: ones() }});
        const again = await session.run({{ a: ones(), b: ones() }});
        const {{ dispatches }} = await session.summary();
        await session.release();
        return {{ right: c.data.every((v) => v === side) && again.c.data.every((v) => v === side), dispatches }};
        """,
        model=PRODUCT,
        side=side,
    )
    assert found["right"]
    assert (found["dispatches"] > 0) == on_gpu


def test_small_run__outputs_that_stay_on_the_gpu__are_computed_there(script: Script) -> None:
    found = script(
        """
        env.hostWork = 1 << 19;
        const session = await InferenceSession.create(decode(model), { preferredOutputLocation: 'gpu-buffer' });
        const { y } = await session.run({ x: new Tensor('float32', [4], [1]) });
        const next = await session.run({ x: y });
        const facts_ = [y.location, next.y.location, ...await next.y.getData()];
        await session.release();
        return facts_;
        """,
        model=DOUBLE,
    )
    assert found == ["gpu-buffer", "gpu-buffer", 16]


@pytest.mark.parametrize(("dtype", "array"), [(TensorProto.BOOL, "bool"), (TensorProto.INT64, "int64")])
def test_run__zero_elements__of_other_types(script: Script, dtype: int, array: str) -> None:
    model = model_bytes(
        [helper.make_node("Concat", ["x", "z"], ["y"], axis=0)],
        [tensor_info("x", ["n"], dtype), tensor_info("z", ["m"], dtype)],
        [tensor_info("y", ["t"], dtype)],
    )
    found = script(
        """
        const session = await InferenceSession.create(decode(model));
        const empty = new Tensor(type, [], [0]);
        const { y } = await session.run({ x: empty, z: new Tensor(type, [1, 0], [2]) });
        const none = await session.run({ x: empty, z: empty });
        await session.release();
        return [facts(y), none.y.dims];
        """,
        model=model,
        type=array,
    )
    assert found[0]["values"] == ["1", "0"] and found[1] == [0]
