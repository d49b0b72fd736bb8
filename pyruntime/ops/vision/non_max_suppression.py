"""NonMaxSuppression: select the best boxes that do not overlap. Source: ONNX operator NonMaxSuppression."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array, DType, ValueType, of_element
from pyruntime.ops.base import LATEST, Op, op
from pyruntime.ops.operands import named


@op("NonMaxSuppression", opsets=range(10, LATEST + 1))
class NonMaxSuppression(Op):
    """Per batch and class: boxes by descending score whose IoU with all previously selected ones is at most a bound.

    boxes: float32 [batch, boxes, 4], two corners (y, x, y, x) or, with `center_point_box`, (x, y, width, height);
    scores: float32 [batch, classes, boxes]. Ties are ordered by index. Only boxes with scores above `score_threshold`
    (default: all) are selected, at most max_output_boxes_per_class (default 0) per class. y: int64 [selected, 3] of
    (batch, class, box).
    """

    operands = named("boxes scores", optional="max_output_boxes_per_class iou_threshold score_threshold")

    data_dependent = True
    center_point_box: int = 0

    def infer(self, *inputs: Any) -> tuple[ValueType, ...]:
        boxes, scores, max_output_boxes_per_class, iou_threshold, score_threshold = self.operands(*inputs)
        if boxes.rank != 3 or boxes.shape[2] != 4 or boxes.dtype is not DType.FLOAT:
            self.fail("boxes float[batch, boxes, 4]", boxes)
        if scores.rank != 3 or (scores.shape[0], scores.shape[2]) != boxes.shape[:2] or scores.dtype is not DType.FLOAT:
            self.fail(f"scores float[{boxes.shape[0]}, classes, {boxes.shape[1]}]", scores)
        options = (max_output_boxes_per_class, iou_threshold, score_threshold)
        for scalar in options:
            if scalar is not None and scalar.size != 1:
                self.fail("thresholds of one element", scalar)
        values = (None if t is None else t.value() for t in options)
        return (of_element(DType.INT64, self.evaluate(boxes.value(), scores.value(), *values)[0]),)

    def evaluate(self, *inputs: Any) -> tuple[Array, ...]:
        boxes, scores, max_output_boxes_per_class, iou_threshold, score_threshold = self.operands(*inputs)
        most = 0 if max_output_boxes_per_class is None else int(max_output_boxes_per_class.reshape(()))
        overlap = 0.0 if iou_threshold is None else float(iou_threshold.reshape(()))
        chosen: list[tuple[int, int, int]] = []
        for batch in range(len(boxes) if most > 0 else 0):
            corners = self._corners(boxes[batch])
            for category, score in enumerate(scores[batch]):
                order = np.argsort(-score, kind="stable")
                if score_threshold is not None:
                    order = order[score[order] > score_threshold.reshape(())]
                chosen += [(batch, category, box) for box in _best(corners, order, most, overlap)]
        return (np.array(chosen, np.int64).reshape(-1, 3),)

    def _corners(self, boxes: Array) -> Array:
        """Return (low, high) along both axes, [2, boxes, 2]."""
        if self.center_point_box:
            half = boxes[:, 2:] / 2
            return np.stack([boxes[:, :2] - half, boxes[:, :2] + half])
        return np.stack([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])])


def _best(corners: Array, order: Array, most: int, overlap: float) -> list[int]:
    """Return the boxes of `order` whose overlap with each previously kept box is at most `overlap`, at most `most`."""
    low, high = corners
    area = np.prod(high - low, axis=1)
    kept: list[int] = []
    while len(order) and len(kept) < most:
        best, order = int(order[0]), order[1:]
        kept.append(best)
        sides = np.minimum(high[best], high[order]) - np.maximum(low[best], low[order])
        common = np.where((sides > 0).all(axis=1), np.prod(sides, axis=1), 0)
        union = area[best] + area[order] - common
        real = (common > 0) & (union > 0) & (area[order] > 0) & (area[best] > 0)
        covered = real & (common / np.where(real, union, 1) > overlap)
        order = order[~covered]
    return kept
