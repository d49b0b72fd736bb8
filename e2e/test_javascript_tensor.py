"""web/tensor.js: types, arrays and dimensions as in onnxruntime-web."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Error, Page


@pytest.fixture
def tensor_page(page: Page, site_url: str) -> Page:
    page.goto(site_url + "e2e/blank.html")
    return page


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
        const data = await tensor.getData(true);
        try { tensor.data; } catch (error) { return [data.length, tensor.location, error.message]; }
    }""")
    assert outcome == [1, "none", "the tensor is disposed"]
