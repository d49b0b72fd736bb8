"""What JavaScript feeds and fetches besides tensors: sequences, maps, optionals; runs' arguments, files by address."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from onnx import TensorProto, helper
from playwright.sync_api import Browser

from e2e.harness.browser import guarded_page
from e2e.harness.modes import DOUBLE, Mode, model_bytes, tensor


@pytest.fixture(scope="module")
def shared_script(browser: Browser, site_url: str) -> Iterator[Mode]:
    with guarded_page(browser, site_url) as (page, guard):
        page.goto(site_url + "e2e/blank.html")
        yield Mode(page, guard, "worker")


SEQUENCE = model_bytes(
    [helper.make_node("SequenceInsert", ["xs", "x"], ["ys"])],
    [helper.make_tensor_sequence_value_info("xs", TensorProto.FLOAT, None), tensor("x")],
    [helper.make_tensor_sequence_value_info("ys", TensorProto.FLOAT, None)],
)
ZIP_MAP = model_bytes(
    [helper.make_node("ZipMap", ["x"], ["z"], domain="ai.onnx.ml", classlabels_int64s=[7, 8])],
    [tensor("x", TensorProto.FLOAT, "n", 2)],
    [helper.make_value_info("z", helper.make_sequence_type_proto(
        helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None))))],
    ml=True,
)  # fmt: skip
VECTORIZE = model_bytes(
    [helper.make_node("DictVectorizer", ["m"], ["y"], domain="ai.onnx.ml", string_vocabulary=["a", "b"])],
    [helper.make_value_info("m", helper.make_map_type_proto(
        TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, None)))],
    [tensor("y", TensorProto.FLOAT, 1, 2)],
    ml=True,
)  # fmt: skip
OPTIONAL = model_bytes(
    [helper.make_node("OptionalHasElement", ["o"], ["has"]), helper.make_node("Identity", ["o"], ["same"])],
    [helper.make_value_info("o", helper.make_optional_type_proto(
        helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"])))],
    [helper.make_tensor_value_info("has", TensorProto.BOOL, []), helper.make_value_info(
        "same", helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"])))],
)  # fmt: skip


def test_run__sequences_and_maps__are_arrays_and_maps(script: Mode) -> None:
    found = script(
        """
        const sequence = await load(sequences);
        const { ys } = await sequence.run({ xs: [floats(1), floats(2, 3)], x: floats(4) });
        const zip = await load(zips);
        const { z } = await zip.run({ x: new Tensor('float32', [0.25, 0.75, 1, 0], [2, 2]) });
        const vectorizer = await load(vectorize);
        const { y } = await vectorizer.run({ m: new Map([['b', 5], ['c', 6]]) });
        const metadata = sequence.inputMetadata[0];
        await Promise.all([sequence.release(), zip.release(), vectorizer.release()]);
        return { ys: ys.map(({ data }) => [...data]), z: z.map((map) => [map.get(7n), map.get(8n)]), y: [...y.data],
                 metadata: [metadata.isTensor, metadata.type] };
        """,
        sequences=SEQUENCE,
        zips=ZIP_MAP,
        vectorize=VECTORIZE,
    )
    assert found == {
        "ys": [[1], [2, 3], [4]],
        "z": [[0.25, 0.75], [1, 0]],
        "y": [0, 5],
        "metadata": [False, "seq(tensor(float))"],
    }


def test_run__optional__is_a_tensor_or_null(script: Mode) -> None:
    found = script(
        """
        const session = await load(model);
        const some = await session.run({ o: floats(3) });
        const none = await session.run({ o: null });
        await session.release();
        return [...some.has.data, ...some.same.data, ...none.has.data, none.same];
        """,
        model=OPTIONAL,
    )
    assert found == [1, 3, 0, None]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ("feeds, []", "TypeError"),
        ("feeds, null", "TypeError"),
        ("feeds, feeds.x", "TypeError"),
        ("feeds, ['nope']", "InvalidArgument"),
        ("feeds.x", "TypeError"),
        ("[feeds.x]", "TypeError"),
        ("feeds, { tag: 'options' }", "nothing was thrown"),
        ("feeds, { y: null }", "nothing was thrown"),
        ("feeds, undefined, { tag: 'options' }", "nothing was thrown"),
    ],
)
def test_run__arguments__are_told_apart_as_in_onnxruntime_web(script: Mode, arguments: str, name: str) -> None:
    found = script(
        f"""
        const session = await load(model);
        const feeds = {{ x: floats(1) }};
        const error = await failure(() => session.run({arguments}));
        await session.release();
        return error;
        """,
        model=DOUBLE,
    )
    assert found["name"] == name, found


def test_external_data__given_by_its_address__is_fetched(script: Mode) -> None:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "missing.bin"), ("length", "8")):
        weight.external_data.add(key=key, value=value)
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [tensor("x")], [tensor("y")], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    script.guard.allow("404")
    found = script("return failure(() => load(model, { externalData: ['./missing.bin'] }))", model=bytes(model))
    assert found["name"] == "NoSuchFile"
    assert "missing.bin" in found["message"]
