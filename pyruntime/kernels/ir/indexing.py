"""Index arithmetic for strided and broadcast access.

A view of a tensor is `(base, strides)`: element at coordinates c is `base + sum(c[d] * strides[d])`, in elements.
Strides may be 0 (broadcast) or negative (a reversed slice; u32 arithmetic wraps to the right answer).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.ir import is_dim

__all__ = [
    "MAX_RANK",
    "broadcast_shapes",
    "broadcast_strides",
    "collapse",
    "contiguous",
    "index_code",
    "index_values",
]

MAX_RANK = 32
"""Dimensions left after `collapse` that kernels can index; as many as NumPy 1 has."""


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides, step = [], 1
    for dim in reversed(shape):
        strides.append(step)
        step *= dim
    return tuple(reversed(strides))


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """NumPy's broadcast of shapes. Raises ValueError where two dimensions differ and neither is 1."""
    rank = max(map(len, shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for d, dim in enumerate(shape, rank - len(shape)):
            if not is_dim(result[d]) and result[d] == 1:
                result[d] = dim  # a dynamic dimension may be 1, too
            elif (is_dim(dim) or dim != 1) and result[d] != dim and dim != 1:
                if result[d] not in (1, dim):
                    raise ValueError(f"shapes {' and '.join(str(list(s)) for s in shapes)} do not broadcast")
                result[d] = dim
    return tuple(result)


def broadcast_strides(shape: Sequence[int], to: Sequence[int]) -> tuple[int, ...]:
    """Strides that read a contiguous tensor of `shape` as if it had shape `to`: 0 along broadcast dimensions."""
    pad = len(to) - len(shape)
    own = contiguous(shape)
    return tuple(0 if d < pad or shape[d - pad] == 1 else own[d - pad] for d in range(len(to)))


def collapse(shape: Sequence[int], *views: Sequence[int]) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Merge neighbouring dimensions that every view steps through evenly; drop those of size 1.

    Returns:
        The collapsed shape (at least one dimension) and each view's strides in it.
    """
    dims: list[int] = []
    strides: list[list[int]] = [[] for _ in views]
    for d, dim in enumerate(shape):
        if not is_dim(dim) and dim == 1:
            continue
        if dims and all(s[-1] == v[d] * dim for s, v in zip(strides, views, strict=True)):
            dims[-1] *= dim
            for s, v in zip(strides, views, strict=True):
                s[-1] = v[d]
        else:
            dims.append(dim)
            for s, v in zip(strides, views, strict=True):
                s.append(v[d])
    if not dims:
        return (1,), tuple((0,) for _ in views)
    return tuple(dims), tuple(tuple(s) for s in strides)


def index_values(
    shape: Sequence[int], views: dict[str, tuple[int, Sequence[int]]], dims: str = "dims"
) -> dict[str, int | list[int]]:
    """Values of the uniforms that `index_code` reads, for views `name -> (base, strides)`."""

    def words(name: str, numbers: Sequence[int]) -> dict[str, int | list[int]]:
        return {f"{name}_{k}": list(numbers[4 * k : 4 * k + 4]) for k in range(-(-len(numbers) // 4))}

    values = words(dims, shape)
    for name, (base, strides) in views.items():
        values |= words(f"{name}_strides", strides)
        values[f"{name}_base"] = base
    return values


def index_code(rank: int, names: Sequence[str], index: str = "i", dims: str = "dims") -> str:
    """WGSL that splits the linear index `index` into coordinates and sets `at_<name>` for every view.

    `dims` names the fields that hold the shape, for kernels that split more than one index.
    """
    if rank > MAX_RANK:
        raise ValueError(f"cannot index {rank} uncollapsed dimensions; {MAX_RANK} at most")
    lines = [f"var rest = {index};"] + [f"var at_{n} = params.{n}_base;" for n in names]
    for d in range(rank - 1, 0, -1):
        word, lane = divmod(d, 4)
        lines.append(f"let q{d} = rest / params.{dims}_{word}[{lane}];")
        lines.append(f"let c{d} = rest - q{d} * params.{dims}_{word}[{lane}];")
        lines += [f"at_{n} += c{d} * params.{n}_strides_{word}[{lane}];" for n in names]
        lines.append(f"rest = q{d};")
    lines += [f"at_{n} += rest * params.{n}_strides_0[0];" for n in names]
    return "\n  ".join(lines)
