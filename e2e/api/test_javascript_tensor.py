"""web/api/tensor.js: types, arrays and dimensions as in onnxruntime-web."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Error, Page

from e2e.harness.script import Script


@pytest.fixture
def tensor_page(script: Script) -> Page:
    return script.page


def make(page: Page, arguments: str) -> Any:
    """Facts of `new Tensor(arguments)`."""
    return page.evaluate(f"""async () => {{
        const {{ Tensor }} = await import('../web/pyruntime.js');
        const tensor = new Tensor({arguments});
        return {{ type: tensor.type, dims: [...tensor.dims], size: tensor.size, location: tensor.location,
                  array: tensor.data.constructor.name, values: [...tensor.data].map(String) }};
    }}""")


@pytest.mark.parametrize(
    ("arguments", "type_", "array", "values"),
    [
        ("'float32', [1.5, 2], [2]", "float32", "Float32Array", ["1.5", "2"]),
        ("'float32', new Float32Array([1, 2, 3, 4]).subarray(1, 3)", "float32", "Float32Array", ["2", "3"]),
        ("new Float64Array([0.1]), [1]", "float64", "Float64Array", ["0.1"]),
        ("'int64', [1, 2n], [2, 1]", "int64", "BigInt64Array", ["1", "2"]),
        ("new BigUint64Array([18446744073709551615n])", "uint64", "BigUint64Array", ["18446744073709551615"]),
        ("[true, false]", "bool", "Uint8Array", ["1", "0"]),
        ("'bool', new Uint8Array([0, 1])", "bool", "Uint8Array", ["0", "1"]),
        ("['a', 'ü']", "string", "Array", ["a", "ü"]),
        ("new Uint8ClampedArray([255])", "uint8", "Uint8Array", ["255"]),
        ("'int4', new Uint8Array([0x21, 0x03]), [3]", "int4", "Uint8Array", ["33", "3"]),
        ("'float32', [], [0, 3]", "float32", "Float32Array", []),
        ("'float32', [7], []", "float32", "Float32Array", ["7"]),
    ],
)
def test_tensor__data__gets_its_type_and_array(
    tensor_page: Page, arguments: str, type_: str, array: str, values: list[str]
) -> None:
    facts = make(tensor_page, arguments)
    found = (facts["type"], facts["array"], facts["values"], facts["location"])
    assert found == (type_, array, values, "cpu")


def test_tensor__float16__is_float16array_where_there_is_one(tensor_page: Page) -> None:
    has = tensor_page.evaluate("'Float16Array' in globalThis")
    facts = make(tensor_page, "'float16', new Uint16Array([0x3c00, 0xc000])")
    assert (facts["array"], facts["values"]) == (
        ("Float16Array", ["1", "-2"]) if has else ("Uint16Array", ["15360", "49152"])
    )


def test_tensor__without_dims__has_one_dimension(tensor_page: Page) -> None:
    assert make(tensor_page, "new Int32Array(5)")["dims"] == [5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("'float32', [1, 2, 3], [2, 2]", "float32 tensor of [2,2] has 4 elements, got 3"),
        ("'float32', [1], [-1]", "dims[0] must not be negative"),
        ("'float32', [1], [1.5]", "dims[0] must be an integer"),
        ("'float', [1]", "unknown tensor type 'float'"),
        ("'int32', new Float32Array(1)", "int32 tensor needs Int32Array, got Float32Array"),
        ("[1, 2]", "an array of numbers needs its tensor type"),
        ("'string', [1]", "array of strings"),
        ("{}", "data must be a typed array"),
    ],
)
def test_tensor__wrong_arguments__are_refused_with_expected_and_got(
    tensor_page: Page, arguments: str, message: str
) -> None:
    with pytest.raises(Error) as caught:
        make(tensor_page, arguments)
    assert message in str(caught.value)


def test_tensor__reshape__shares_the_data(tensor_page: Page) -> None:
    shared = tensor_page.evaluate("""async () => {
        const { Tensor } = await import('../web/pyruntime.js');
        const tensor = new Tensor('float32', new Float32Array(6), [2, 3]);
        const other = tensor.reshape([3, 2]);
        return [other.data === tensor.data, ...other.dims];
    }""")
    assert shared == [True, 3, 2]


def test_tensor__disposed__has_no_data(tensor_page: Page) -> None:
    outcome = tensor_page.evaluate("""async () => {
        const { Tensor } = await import('../web/pyruntime.js');
        const tensor = new Tensor('float32', [1]);
        const data = await tensor.getData(true); // of no effect on the CPU, as in onnxruntime-web
        const before = tensor.location;
        tensor.dispose();
        try { tensor.data; } catch (error) { return [data.length, before, tensor.location, error.message]; }
    }""")
    assert outcome == [1, "cpu", "none", "the tensor is disposed"]


IMAGE = """
    const { Tensor } = await import('../web/pyruntime.js');
    const pixels = new Uint8ClampedArray([10, 20, 30, 255, 40, 50, 60, 255, 70, 80, 90, 255, 0, 255, 128, 255]);
    const image = new ImageData(pixels, 2, 2);
"""


@pytest.mark.parametrize(
    ("options", "type_", "dims", "values"),
    [
        ("{}", "float32", [1, 3, 2, 2], [v / 255 for v in (10, 40, 70, 0, 20, 50, 80, 255, 30, 60, 90, 128)]),
        ("{ tensorFormat: 'BGR', norm: { mean: 1 } }", "float32", [1, 3, 2, 2],
         [30, 60, 90, 128, 20, 50, 80, 255, 10, 40, 70, 0]),
        ("{ tensorLayout: 'NHWC', dataType: 'uint8' }", "uint8", [1, 2, 2, 3],
         [10, 20, 30, 40, 50, 60, 70, 80, 90, 0, 255, 128]),
        ("{ norm: { mean: [1, 2, 5], bias: [0, -10, 10] } }", "float32", [1, 3, 2, 2],
         [10, 40, 70, 0, 5, 20, 35, 122.5, 8, 14, 20, 27.6]),
        ("{ tensorFormat: 'RGBA', norm: { mean: 1 }, resizedWidth: 1, resizedHeight: 1 }", "float32", [1, 4, 1, 1],
         [30, 101, 77, 255]),
    ],
)  # fmt: skip
def test_from_image__options__place_and_scale_the_channels(
    tensor_page: Page, options: str, type_: str, dims: list[int], values: list[float]
) -> None:
    found = tensor_page.evaluate(f"""async () => {{ {IMAGE}
        const {{ type, dims, data }} = await Tensor.fromImage(image, {options});
        return {{ type, dims: [...dims], data: [...data] }}; }}""")
    assert (found["type"], found["dims"]) == (type_, dims)
    assert found["data"] == pytest.approx(values, abs=1.0 if "resized" in options else 1e-5)


@pytest.mark.parametrize("source", ["canvas", "bitmap", "blob", "element", "address"])
def test_from_image__every_kind_of_picture__is_read(tensor_page: Page, source: str) -> None:
    found = tensor_page.evaluate(f"""async () => {{ {IMAGE}
        const canvas = document.createElement('canvas');
        canvas.width = canvas.height = 2;
        canvas.getContext('2d').putImageData(image, 0, 0);
        const blob = await new Promise((resolve) => canvas.toBlob(resolve));
        const address = URL.createObjectURL(blob);
        const element = new Image();
        element.src = address;
        await element.decode();
        const bitmap = await createImageBitmap(blob);
        const {{ data }} = await Tensor.fromImage({source}, {{ norm: {{ mean: 1 }} }});
        return [...data]; }}""")
    assert found == [10, 40, 70, 0, 20, 50, 80, 255, 30, 60, 90, 128]


@pytest.mark.parametrize(
    "options", ["{}", "{ tensorFormat: 'RGBA' }", "{ tensorFormat: 'RBG' }", "{ tensorLayout: 'NHWC' }",
                "{ norm: { mean: 127.5, bias: -127.5 } }"],
)  # fmt: skip
def test_to_image_data__of_from_image__is_the_picture(tensor_page: Page, options: str) -> None:
    found = tensor_page.evaluate(f"""async () => {{ {IMAGE}
        const options = {options};
        const tensor = await Tensor.fromImage(image, options);
        const {{ mean, bias }} = options.norm ?? {{}};
        const norm = bias === undefined ? undefined : {{ mean, bias: bias / mean }};
        const {{ data, width, height }} = tensor.toImageData({{
          format: options.tensorFormat, tensorLayout: options.tensorLayout, norm }});
        return [width, height, [...data].join() === pixels.join(), tensor.toDataURL === undefined]; }}""")
    assert found == [2, 2, True, False]


def test_to_image_data__one_channel__is_grey_and_clamped(tensor_page: Page) -> None:
    found = tensor_page.evaluate("""async () => {
        const { Tensor } = await import('../web/pyruntime.js');
        return [...new Tensor('float32', [0.5, -1, 2], [1, 1, 1, 3]).toImageData().data];
    }""")
    assert found == [128, 128, 128, 255, 0, 0, 0, 255, 255, 255, 255, 255]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("new Tensor('float32', [1, 2]).toImageData()", "rank 4"),
        ("new Tensor('float32', [1], [1, 1, 1, 1]).gpuBuffer", "not in a GPUBuffer"),
        ("new Tensor('float32', [1], [1, 1, 1, 1]).texture", "WebGL"),
        ("Tensor.fromTexture()", "fromGpuBuffer"),
        ("Tensor.fromMLTensor()", "fromGpuBuffer"),
        ("new Tensor({ location: 'texture', type: 'float32', dims: [1] })", "'texture'"),
        ("Tensor.fromPinnedBuffer('float32', new Float32Array(3), [2])", "got 3"),
        ("new Tensor({ location: 'gpu-buffer', type: 'float32', dims: [1], gpuBuffer: {} }).data", "getData()"),
    ],
)
def test_tensor__what_it_has_not__is_said(tensor_page: Page, arguments: str, message: str) -> None:
    with pytest.raises(Error) as caught:
        tensor_page.evaluate(
            f"async () => {{ const {{ Tensor }} = await import('../web/pyruntime.js'); {arguments}; }}"
        )
    assert message in str(caught.value)
