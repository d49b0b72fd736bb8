"""Handwritten digits: several styles of each, varied at random, as polylines for `digits_data.rasterize`.

scikit-learn's digits come from paper forms; on a screen people also cross the 7, leave the 4 open or give the 1 a foot.
Each style is a list of strokes, each stroke the points of a Catmull-Rom spline in the unit square with y down; a point
given twice is a corner.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float64]
Style = list[list[tuple[float, float]]]

_FLAG = [(0.3, 0.25), (0.55, 0.0), (0.55, 0.0), (0.55, 1.0)]
_BOWL5 = [(0.25, 0.45), (0.5, 0.38), (0.8, 0.5), (0.82, 0.75), (0.6, 0.97), (0.3, 0.98), (0.12, 0.86)]
_LOOP9 = [(0.78, 0.2), (0.6, 0.02), (0.35, 0.04), (0.2, 0.22), (0.28, 0.44), (0.5, 0.5), (0.72, 0.38), (0.78, 0.2)]

STYLES: dict[int, list[Style]] = {
    0: [
        [[(0.5, 0), (0.2, 0.12), (0.08, 0.5), (0.2, 0.88), (0.5, 1), (0.8, 0.88), (0.92, 0.5), (0.8, 0.12), (0.5, 0)]],
        [[(0.6, 0.02), (0.3, 0.1), (0.2, 0.5), (0.3, 0.92), (0.5, 1), (0.72, 0.88), (0.8, 0.5), (0.7, 0.1), (0.45, 0)]],
        [[(0.5, 0), (0.85, 0.1), (0.95, 0.5), (0.8, 0.9), (0.45, 1), (0.1, 0.8), (0.05, 0.45), (0.2, 0.1), (0.55, 0)]],
    ],
    1: [
        [[(0.5, 0), (0.5, 0.5), (0.5, 1)]],
        [[(0.58, 0), (0.5, 0.5), (0.42, 1)]],
        [_FLAG],
        [[(0.2, 0.4), (0.4, 0.22), (0.55, 0), (0.55, 0), (0.54, 0.5), (0.55, 1)]],
        [_FLAG, [(0.25, 1.0), (0.85, 1.0)]],
    ],
    2: [
        [[(0.12, 0.25), (0.3, 0.03), (0.65, 0.02), (0.82, 0.25), (0.65, 0.55), (0.1, 1), (0.1, 1), (0.9, 1)]],
        [
            [
                (0.15, 0.2), (0.4, 0), (0.75, 0.1), (0.75, 0.4), (0.45, 0.75), (0.2, 0.95), (0.1, 0.85), (0.25, 0.78),
                (0.55, 0.95), (0.92, 0.92),
            ]
        ],
        [[(0.1, 0.1), (0.5, 0), (0.8, 0.2), (0.6, 0.6), (0.15, 0.97), (0.15, 0.97), (0.5, 0.93), (0.85, 1)]],
    ],
    3: [
        [
            [
                (0.15, 0.12), (0.45, 0), (0.75, 0.12), (0.72, 0.36), (0.4, 0.48), (0.4, 0.48), (0.78, 0.58),
                (0.82, 0.84), (0.5, 1), (0.12, 0.88),
            ]
        ],
        [[(0.15, 0), (0.8, 0), (0.8, 0), (0.42, 0.4), (0.42, 0.4), (0.8, 0.55), (0.82, 0.82), (0.5, 1), (0.12, 0.9)]],
        [[(0.2, 0.1), (0.6, 0), (0.75, 0.2), (0.5, 0.45), (0.75, 0.6), (0.78, 0.85), (0.45, 1), (0.15, 0.9)]],
    ],
    4: [
        [[(0.3, 0), (0.15, 0.55), (0.15, 0.55), (0.9, 0.55)], [(0.68, 0.2), (0.66, 0.6), (0.65, 1)]],
        [[(0.2, 0.02), (0.18, 0.5), (0.18, 0.5), (0.82, 0.5)], [(0.8, 0), (0.8, 0.5), (0.8, 1)]],
        [[(0.65, 1), (0.65, 0), (0.65, 0), (0.08, 0.68), (0.08, 0.68), (0.92, 0.68)]],
        [[(0.65, 0), (0.08, 0.65), (0.08, 0.65), (0.92, 0.65)], [(0.65, 0), (0.65, 1)]],
        [[(0.2, 0.05), (0.2, 0.4), (0.45, 0.52), (0.75, 0.4)], [(0.8, 0), (0.76, 0.5), (0.72, 1)]],
    ],
    5: [
        [[(0.8, 0), (0.25, 0), (0.25, 0), (0.22, 0.45), (0.22, 0.45), *_BOWL5[1:]]],
        [[(0.28, 0), (0.24, 0.46), (0.24, 0.46), *_BOWL5[1:]], [(0.28, 0.02), (0.55, 0.03), (0.85, 0)]],
        [[(0.85, 0.03), (0.5, 0.03), (0.28, 0.1), (0.28, 0.38), (0.6, 0.45), (0.8, 0.7), (0.6, 0.97), (0.15, 0.95)]],
        [[(0.75, 0), (0.3, 0.02), (0.3, 0.02), (0.2, 0.4), (0.2, 0.4), (0.65, 0.5), (0.7, 0.8), (0.4, 1), (0.1, 0.95)]],
    ],
    6: [
        [
            [
                (0.7, 0), (0.35, 0.2), (0.15, 0.6), (0.25, 0.92), (0.55, 1), (0.8, 0.8), (0.7, 0.58), (0.45, 0.52),
                (0.18, 0.7),
            ]
        ],
        [[(0.5, 0), (0.25, 0.4), (0.15, 0.75), (0.4, 1), (0.75, 0.88), (0.72, 0.62), (0.45, 0.56), (0.2, 0.72)]],
        [[(0.85, 0.1), (0.5, 0), (0.2, 0.3), (0.1, 0.7), (0.45, 1), (0.85, 0.8), (0.7, 0.5), (0.35, 0.5), (0.1, 0.7)]],
    ],
    7: [
        [[(0.1, 0.02), (0.85, 0.02), (0.85, 0.02), (0.55, 0.5), (0.4, 1)]],
        [[(0.1, 0), (0.9, 0), (0.9, 0), (0.35, 1)], [(0.3, 0.5), (0.85, 0.48)]],
        [[(0.12, 0.18), (0.12, 0), (0.12, 0), (0.85, 0), (0.85, 0), (0.5, 0.55), (0.42, 1)]],
        [[(0.1, 0.08), (0.4, 0.02), (0.85, 0.05), (0.65, 0.45), (0.5, 1)], [(0.35, 0.55), (0.8, 0.5)]],
    ],
    8: [
        [
            [
                (0.75, 0.15), (0.5, 0), (0.25, 0.15), (0.32, 0.38), (0.68, 0.6), (0.8, 0.82), (0.5, 1), (0.2, 0.82),
                (0.32, 0.6), (0.68, 0.38), (0.75, 0.15),
            ]
        ],
        [
            [(0.5, 0), (0.25, 0.12), (0.28, 0.36), (0.5, 0.46), (0.72, 0.36), (0.75, 0.12), (0.5, 0)],
            [(0.5, 0.46), (0.2, 0.6), (0.2, 0.88), (0.5, 1), (0.8, 0.88), (0.8, 0.6), (0.5, 0.46)],
        ],
        [
            [
                (0.5, 0.45), (0.22, 0.3), (0.3, 0.03), (0.65, 0), (0.78, 0.2), (0.5, 0.45), (0.2, 0.7), (0.3, 0.97),
                (0.7, 0.97), (0.82, 0.72), (0.5, 0.45),
            ]
        ],
    ],
    9: [
        [[*_LOOP9, (0.74, 0.6), (0.68, 1)]],
        [[*_LOOP9, (0.78, 0.2), (0.78, 1)]],
        [[*_LOOP9, (0.78, 0.6), (0.68, 0.9), (0.4, 1), (0.15, 0.9)]],
        [[(0.7, 0.1), (0.4, 0), (0.2, 0.2), (0.3, 0.45), (0.6, 0.42), (0.75, 0.15), (0.72, 0.5), (0.45, 1)]],
    ],
}  # fmt: skip


def spline(points: list[tuple[float, float]], steps: int = 6) -> Points:
    """Return the Catmull-Rom spline through `points`, with `steps` line segments between each two."""
    p = np.array([points[0], *points, points[-1]], dtype=np.float64)
    t = np.linspace(0, 1, steps, endpoint=False)[:, None]
    pieces = []
    for a, b, c, d in zip(p, p[1:], p[2:], p[3:], strict=False):
        if np.array_equal(b, c):
            continue
        # At a corner the neighbor is the corner itself, so the spline leaves it straight.
        pieces.append(b + 0.5 * t * ((c - a) + t * ((2 * a - 5 * b + 4 * c - d) + t * (3 * b - a - 3 * c + d))))
    return np.concatenate([*pieces, p[-1:]])


def _trimmed(path: Points, rng: np.random.Generator) -> Points:
    """Cut up to 5% of the length off either end, like hurried writing."""
    reached = np.cumsum(np.linalg.norm(np.diff(path, axis=0, prepend=path[:1]), axis=1))
    first, last = rng.uniform(0, 0.05, 2) * reached[-1]
    kept: Points = path[(reached >= first) & (reached <= reached[-1] - last)]
    return kept


def random_digit(digit: int, rng: np.random.Generator) -> list[Points]:
    """Return one of the digit's styles with points jittered, slanted, rotated, bent, and the aspect changed."""
    style = STYLES[digit][rng.integers(len(STYLES[digit]))]
    strokes = []
    for stroke in style:
        shift = rng.normal(0, 0.03, 2)
        moved: dict[tuple[float, float], tuple[float, float]] = {}
        for point in stroke:
            x, y = np.array(point) + rng.normal(0, 0.035, 2) + shift
            moved.setdefault(point, (float(x), float(y)))
        closed_gap = rng.normal(0, 0.04, 2) if stroke[0] == stroke[-1] else np.zeros(2)
        path = spline([moved[point] for point in stroke])
        path += closed_gap * np.linspace(0, 1, len(path))[:, None] ** 2
        strokes.append(_trimmed(path, rng))
    angle, shear = np.radians(rng.normal(0, 8)), rng.normal(0, 0.15)
    aspect = np.exp(rng.normal(-0.1, 0.25))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    transform = turn @ np.array([[aspect, -shear], [0, 1]])
    bend, phase = rng.normal(0, 0.03, 2), rng.uniform(0, 2 * np.pi, 2)
    return [(path - 0.5) @ transform.T + bend * np.sin(2 * np.pi * path[:, ::-1] + phase) for path in strokes]
