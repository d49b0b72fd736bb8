"""Elements that are only moved: slices with steps, transpositions in a row, rows around norms, masks of windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.ir import TypedGraph
from pyruntime.passes.cleanup import simplify_shapes, unit_dims
from pyruntime.passes.layout import merge_transposes, move_rows, slices_to_transpose
from tests.passes.support import LAST, apply, cleaned, graph_of, ints, node


def masked(wide: tuple[int, ...], m: Any, known: bool = True) -> TypedGraph:
    """Scores of windows of two images and a mask, added in the shape `wide`, before a softmax."""
    constants = {"up": ints(*wide), "down": ints(8, 2, 5, 5), **({"m": m} if known else {})}
    nodes = [
        node("Reshape", ["x", "up"], ["a"]),
        node("Add", ["a", "m"], ["b"]),
        node("Reshape", ["b", "down"], ["c"]),
        node("Softmax", ["c"], ["y"], axis=-1),
    ]
    return graph_of(nodes, {"x": (8, 2, 5, 5), **({} if known else {"m": m.shape})}, ["y"], constants)


@pytest.mark.parametrize("m", [(1, 4, 1, 5, 5), (2, 1, 1, 5, 5), (1, 4, 2, 5, 1)])
def test_unit_dims__known_mask_of_batches_of_windows__meets_the_scores(m: tuple[int, ...]) -> None:
    graph = masked((2, 4, 2, 5, 5), np.arange(np.prod(m), dtype=np.float32).reshape(m))
    assert apply(unit_dims.run, graph)
    assert cleaned(graph) == ["Expand", "Reshape", "Add", "Softmax"]


@pytest.mark.parametrize(
    "graph",
    [
        masked((2, 4, 2, 25), np.ones((4, 2, 25), np.float32)),
        masked((2, 4, 2, 5, 5), np.ones((1, 4, 1, 5, 5), np.float32), known=False),
    ],
    ids=["rows that are split", "a mask of the run"],
)
def test_unit_dims__other_masks_of_batches__are_left_alone(graph: TypedGraph) -> None:
    assert not apply(unit_dims.run, graph)


def sliced(starts: list[tuple[int, ...]], steps: tuple[int, ...], axes: tuple[int, ...], axis: int) -> Any:
    """A Concat of slices of x from these starts on; nodes and constants."""
    constants: dict[str, Any] = {"axes": ints(*axes), "steps": ints(*steps), "ends": ints(*[LAST] * len(axes))}
    constants |= {f"from{i}": ints(*start) for i, start in enumerate(starts)}
    parts = [node("Slice", ["x", f"from{i}", "ends", "axes", "steps"], [f"s{i}"]) for i in range(len(starts))]
    return [*parts, node("Concat", [p.outputs[0] for p in parts], ["y"], axis=axis)], constants


FOUR = [(0, 0), (1, 0), (0, 1), (1, 1)]


@pytest.mark.parametrize(
    ("starts", "steps", "axes", "axis"),
    [
        (FOUR, (2, 2), (1, 2), -1),
        (sorted(FOUR), (2, 2), (1, 2), 1),
        ([(i, j) for j in range(3) for i in range(2)], (2, 3), (1, 2), 3),
        ([(0,), (1,), (2,)], (3,), (2,), 2),
    ],
)
def test_slices_to_transpose__every_nth_from_each_start__is_a_transposition(
    starts: list[tuple[int, ...]], steps: tuple[int, ...], axes: tuple[int, ...], axis: int
) -> None:
    nodes, constants = sliced(starts, steps, axes, axis)
    graph = graph_of(nodes, {"x": (2, 4, 6, 5)}, ["y"], constants)
    assert apply(slices_to_transpose.run, graph)
    assert cleaned(graph) == ["Reshape", "Transpose", "Reshape"]


@pytest.mark.parametrize(
    ("starts", "steps"),
    [
        ([(0, 0), (1, 1), (0, 1), (1, 0)], (2, 2)),  # in no order
        ([(0, 0), (1, 0), (0, 0), (1, 0)], (2, 2)),  # one twice
        ([(0, 0), (1, 0)], (2, 2)),  # not all
        ([(0, 0), (2, 0)], (2, 1)),  # beyond the step
    ],
)
def test_slices_to_transpose__other_slices__are_left_alone(
    starts: list[tuple[int, ...]], steps: tuple[int, ...]
) -> None:
    nodes, constants = sliced(starts, steps, (1, 2), 1)
    assert not apply(slices_to_transpose.run, graph_of(nodes, {"x": (2, 4, 6, 5)}, ["y"], constants))


def test_slices_to_transpose__sizes_that_steps_do_not_divide__are_left_alone() -> None:
    nodes, constants = sliced([(0, 0), (0, 1)], (1, 2), (1, 2), 3)
    nodes[-1] = node("Concat", ["s0", "s1"], ["y"], axis=2)
    assert not apply(slices_to_transpose.run, graph_of(nodes, {"x": (2, 4, 5, 3)}, ["y"], constants))


@pytest.mark.parametrize(
    ("shape", "first", "middle", "second"),
    [
        ((12, 4, 3, 2), (0, 2, 1, 3), (1, 12, 12, 2), (0, 3, 2, 1)),
        ((2, 6, 5), (1, 0, 2), (3, 4, 5), (0, 2, 1)),
        ((4, 1, 6), (2, 1, 0), (6, 4), (1, 0)),
        ((2, 3, 4), (2, 0, 1), (4, 2, 3), (2, 1, 0)),
    ],
)
def test_merge_transposes__dimensions_that_both_are_made_of__are_moved_once(
    shape: tuple[int, ...], first: tuple[int, ...], middle: tuple[int, ...], second: tuple[int, ...]
) -> None:
    nodes = [
        node("Transpose", ["x"], ["a"], perm=first),
        node("Reshape", ["a", "middle"], ["b"]),
        node("Transpose", ["b"], ["y"], perm=second),
    ]
    graph = graph_of(nodes, {"x": shape}, ["y"], {"middle": ints(*middle)})
    assert apply(merge_transposes.run, graph)
    assert cleaned(graph) == ["Reshape", "Transpose", "Reshape"]


def test_merge_transposes__three_in_a_row__are_one() -> None:
    nodes = [
        node("Transpose", ["x"], ["a"], perm=(0, 2, 1)),
        node("Transpose", ["a"], ["b"], perm=(1, 0, 2)),
        node("Reshape", ["b", "flat"], ["c"]),
        node("Transpose", ["c"], ["y"], perm=(1, 0)),
    ]
    graph = graph_of(nodes, {"x": (2, 3, 4)}, ["y"], {"flat": ints(4, 6)})
    assert apply(merge_transposes.run, graph)
    assert cleaned(graph).count("Transpose") == 1


@pytest.mark.parametrize(("middle", "outputs"), [((8, 3), ["y"]), ((4, 6), ["y", "a"])])
def test_merge_transposes__no_common_dimensions_or_a_value_read_elsewhere__stay(
    middle: tuple[int, ...], outputs: list[str]
) -> None:
    nodes = [
        node("Transpose", ["x"], ["a"], perm=(1, 0)),
        node("Reshape", ["a", "middle"], ["b"]),
        node("Transpose", ["b"], ["y"], perm=(1, 0)),
    ]
    graph = graph_of(nodes, {"x": (4, 6)}, outputs, {"middle": ints(*middle)})
    assert not apply(merge_transposes.run, graph)


WEIGHTS_OF_ROWS = {"g": np.linspace(0.5, 1.5, 16, dtype=np.float32), "split": ints(2, 3, 4, 16)}


@pytest.mark.parametrize("norm", [["LayerNormalization", "n", "g", "g"], ["RMSNormalization", "n", "g"]])
def test_move_rows__transpositions_around_a_norm__are_its_own(norm: list[str]) -> None:
    nodes = [
        node("Reshape", ["x", "split"], ["a"]),
        node("Transpose", ["a"], ["n"], perm=(0, 2, 1, 3)),
        node(norm[0], norm[1:], ["b"]),
        node("Transpose", ["b"], ["c"], perm=(1, 0, 2, 3)),
        node("Relu", ["c"], ["y"]),
    ]
    graph = graph_of(nodes, {"x": (2, 12, 16)}, ["y"], WEIGHTS_OF_ROWS)
    assert apply(move_rows.run, graph)
    assert cleaned(graph) == ["Reshape", "SkipNorm", "Reshape", "Relu"]


@pytest.mark.parametrize(
    ("perm", "outputs"), [((0, 2, 1, 3), ["y", "c"]), ((0, 3, 2, 1), ["y"]), ((0, 1, 2, 3), ["y"])]
)
def test_move_rows__rows_taken_apart_kept_or_read_elsewhere__stay(perm: tuple[int, ...], outputs: list[str]) -> None:
    nodes = [
        node("LayerNormalization", ["x", "g", "g"], ["b"]),
        node("Relu", ["b"], ["c"]),
        node("Transpose", ["b"], ["y"], perm=perm),
    ]
    graph = graph_of(nodes if "c" in outputs else [nodes[0], nodes[2]], {"x": (2, 3, 4, 16)}, outputs, WEIGHTS_OF_ROWS)
    assert not apply(move_rows.run, graph)


@pytest.mark.parametrize(("last", "moved"), [(32, True), (8, False)])
def test_move_rows__rows_put_together_of_small_pieces__are_moved_before(last: int, moved: bool) -> None:
    constants: dict[str, Any] = {"g": np.ones(2 * last, np.float32), "rows": ints(6, 2 * last)}
    nodes = [
        node("Transpose", ["x"], ["a"], perm=(1, 0, 2)),
        node("Reshape", ["a", "rows"], ["b"]),
        node("LayerNormalization", ["b", "g", "g"], ["y"]),
    ]
    graph = graph_of(nodes, {"x": (3, 4, last)}, ["y"], constants)
    assert apply(move_rows.run, graph) == moved


def test_simplify_shapes__pad_of_nothing__goes() -> None:
    nodes = [node("Pad", ["x", "none"], ["a"]), node("Pad", ["a", "shift"], ["b"]), node("Relu", ["b"], ["y"])]
    constants = {"none": ints(0, 0, 0, 0), "shift": ints(0, 1, 0, -1)}
    graph = graph_of(nodes, {"x": (3, 4)}, ["y"], constants)
    assert apply(simplify_shapes.run, graph)
    assert cleaned(graph) == ["Pad", "Relu"]
