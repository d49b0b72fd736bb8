"""ONNX's cases of one node, operator by operator: `evaluate` gives what `infer` says. Sessions: tests/conformance."""

from __future__ import annotations

from e2e.conformance.known import known_failures
from tests.harness import check_case, node_tests, op_and_data, single_node


def test_onnx_cases__of_one_node__expected_outputs() -> None:
    ran, wrong = 0, {}
    for name, case in node_tests().items():
        node = single_node(case)
        if node is None or name in known_failures("native") or any(a.HasField("g") for a in node.attribute):
            continue
        if any(isinstance(x, list) for data in op_and_data(name)[1] for x in (*data[0], *data[1])):
            continue
        ran += 1
        try:
            check_case(name)
        except Exception as error:
            wrong[name] = f"{type(error).__name__}: {error}"[:300]
    assert not wrong
    assert ran >= 1000
