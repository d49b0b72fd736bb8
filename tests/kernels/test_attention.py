"""Which attention kernel runs where."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Dispatch, Limits, Target, inp, out
from pyruntime.kernels.attention.attention import LARGE, SMALL, WIDE, Tile, attend
from pyruntime.kernels.attention.candidates import ATTENTIONS, AttentionWay, few_of
from pyruntime.kernels.attention.description import AttentionForm, AttentionProblem, AttentionTensors, HeadView, Reach
from pyruntime.kernels.attention.few_queries import MOST_ROWS, FewQueries
from pyruntime.target import H200

NVIDIA = Target(Limits(storage_buffers=10, workgroup_bytes=49152), vendor="nvidia")


def form(heads: int, queries: int, keys: int, size: int) -> AttentionForm:
    def packed(positions: int) -> HeadView:
        return HeadView(0, (positions * heads * size, size, heads * size, 1))

    views = (packed(queries), packed(keys), packed(keys), packed(queries))
    return AttentionForm((1, heads, queries, keys, size, size), *views, 0.125, False)


def lowered(target: Target, made: AttentionForm) -> list[Dispatch]:
    _, heads, queries, keys, size, _ = made.sizes
    shapes = [(1, p, heads * size) for p in (queries, keys, keys)]
    q, k, v = (inp(i, TensorType(DType.FLOAT, s)) for i, s in enumerate(shapes))
    return list(attend(target, made, AttentionTensors(q, k, v, out(0, q.type))))


def chosen(made: AttentionForm, target: Target) -> AttentionWay:
    return ATTENTIONS.choose(AttentionProblem.of(made), target).way


def tile_of(made: AttentionForm, target: Target) -> Tile | None:
    tile = chosen(made, target).tile
    return None if tile is None else tile.over(AttentionProblem.of(made))


def few_queries(made: AttentionForm, target: Target) -> FewQueries | None:
    problem = AttentionProblem.of(made)
    return few_of(problem, target, chosen(made, target))


@pytest.mark.parametrize(
    ("sizes", "tile"),
    [
        ((6, 1500, 1500, 64), replace(SMALL, splits=2)),  # whisper-tiny's encoder
        ((1, 16384, 256, 32), SMALL),  # segformer's first stage
        ((2, 4096, 256, 32), SMALL),
        ((12, 128, 128, 64), WIDE),  # bert
        ((16, 257, 257, 64), SMALL),  # more workgroups than units
        ((32, 1, 512, 64), None),  # a decoder's step
        ((32, 2048, 2048, 128), SMALL),
    ],
)
def test_attend__sizes__tile_that_fills_the_machine(sizes: tuple[int, int, int, int], tile: Tile | None) -> None:
    assert tile_of(form(*sizes), NVIDIA) == tile


def test_attend__few_units__nothing_is_split() -> None:
    laptop = replace(NVIDIA, rates=replace(H200, units=8, flops=H200.flops * 8 / H200.units))
    whisper, decode = form(6, 1500, 1500, 64), form(32, 1, 1024, 64)
    assert tile_of(whisper, laptop) == SMALL
    few, many = few_queries(decode, laptop), few_queries(decode, NVIDIA)
    assert few is not None and many is not None
    assert few.splits < many.splits


def test_attend__little_workgroup_memory__only_tiles_that_fit() -> None:
    whisper = form(6, 1500, 1500, 64)
    assert tile_of(whisper, Target(Limits(workgroup_bytes=16384))) is None
    small = tile_of(whisper, Target(Limits(workgroup_bytes=32768)))
    assert small is not None and small.rows == SMALL.rows
    for tile in (LARGE, SMALL):
        for size in (32, 64, 128):
            kernel_bytes = tile.workgroup_bytes(size, size)
            assert (kernel_bytes <= 49152) == (size <= 64 or tile is SMALL)


def test_attend__keys_split__every_share_has_keys() -> None:
    for keys in (300, 511, 700, 1500, 4000):
        tile = tile_of(form(6, 1500, keys, 64), NVIDIA)
        assert tile is not None
        steps = tile.steps(form(6, 1500, keys, 64))
        assert (tile.splits - 1) * steps * tile.keys < keys <= tile.splits * steps * tile.keys


def test_attend__variants_switched_off__are_not_used() -> None:
    whisper = form(6, 1500, 1500, 64)
    names = [d.kernel.name for d in lowered(NVIDIA, whisper)]
    assert [n.split("_dim")[0] for n in names] == ["attention_tiled", "attention_merge"]
    whole = lowered(replace(NVIDIA, disabled=frozenset({"attention_split"})), whisper)
    assert [d.kernel.name.startswith("attention_tiled") for d in whole] == [True]
    flash = lowered(replace(NVIDIA, disabled=frozenset({"attention_tiled"})), whisper)
    assert [d.kernel.name.startswith("attention_flash") for d in flash] == [True]
    processor = replace(NVIDIA, vendor="google")
    assert lowered(processor, form(6, 150, 150, 64))[0].kernel.name.startswith("attention_rows")
    assert lowered(processor, whisper)[0].kernel.name.startswith("attention_tiled")
    rows = lowered(replace(processor, disabled=frozenset({"attention_tiled"})), whisper)
    assert rows[0].kernel.name.startswith("attention_rows")


@pytest.mark.parametrize("size", [64, 80, 128, 256, 512])
@pytest.mark.parametrize(("heads", "group"), [(32, 4), (8, 8), (12, 1), (16, 16)])
@pytest.mark.parametrize("keys", [1, 256, 257, 4096, 32768])
def test_few_queries__any_context__fits_every_device(size: int, heads: int, group: int, keys: int) -> None:
    decode = replace(form(heads, 1, keys, size), group=group)
    made = few_queries(decode, Target())
    assert made is not None
    assert made.workgroup_bytes(size) <= Limits().workgroup_bytes
    assert made.rows <= MOST_ROWS and made.rows >= min(group, 2)
    assert (made.splits == 1) == (keys <= 256)
    assert made.groups(decode) * made.splits <= max(2 * 512, made.groups(decode))
    names = [d.kernel.name.split("_dim")[0] for d in lowered(Target(), decode)]
    assert names == ["attention_few_queries", *["attention_merge"] * (made.splits > 1)]
    for dispatch in lowered(Target(), decode):
        assert max(o.type.nbytes for o in dispatch.operands) <= Limits().binding_bytes or keys * size * heads >= 1 << 25
        assert len(dispatch.operands) <= Limits().storage_buffers


def test_few_queries__window__keys_outside_are_no_work() -> None:
    decode = form(8, 1, 32768, 64)
    near = few_queries(replace(decode, reach=Reach(before=199, after=0)), Target())
    assert near is not None and near.splits == 1


@pytest.mark.parametrize(("queries", "group", "few"), [(1, 1, True), (16, 2, True), (16, 4, False), (17, 1, False)])
def test_attend__count_of_queries__chooses_the_kernel(queries: int, group: int, few: bool) -> None:
    made = replace(form(4, queries, 64, 64), group=group)
    (dispatch,) = lowered(NVIDIA, made)
    assert dispatch.kernel.name.startswith("attention_few_queries") == few
    (without,) = lowered(replace(NVIDIA, disabled=frozenset({"attention_few"})), made)
    assert without.kernel.name.startswith(("attention_flash", "attention_tiled"))
    assert lowered(replace(NVIDIA, vendor="google"), made)[0].kernel.name.startswith("attention_rows")


def test_attend__wide_heads__never_in_registers_of_the_others() -> None:
    (dispatch,) = lowered(NVIDIA, form(2, 100, 64, 256))
    assert dispatch.kernel.name.startswith("attention_few_queries")


@pytest.mark.parametrize("workgroup_bytes", [16384, 32768, 49152])
@pytest.mark.parametrize("size", [8, 64, 80, 128, 160, 256])
def test_attend__any_sizes__fits_the_workgroup_memory_there_is(size: int, workgroup_bytes: int) -> None:
    """As the modules say it: the formulas that kernels are chosen by are not asked."""
    limits = Limits(storage_buffers=10, workgroup_bytes=workgroup_bytes)
    for vendor in ("nvidia", "google"):
        for off in (frozenset[str](), frozenset({"attention_few"}), frozenset({"attention_few", "attention_tiled"})):
            for heads, queries, keys in (
                (40, 1, 300),
                (4, 1, 9),
                (4, 8, 70),
                (12, 64, 1),
                (1, 196, 1500),
                (12, 700, 700),
            ):
                for d in lowered(Target(limits, vendor=vendor, disabled=off), form(heads, queries, keys, size)):
                    module = d.kernel.module
                    assert module.workgroup_bytes <= workgroup_bytes, (d.kernel.name, heads, queries, keys)
                    assert 0 < module.invocations <= limits.invocations


def test_tile__formula__is_what_the_module_takes() -> None:
    for heads, queries, keys, size in ((32, 2048, 2048, 128), (1, 16384, 256, 32), (6, 1500, 1500, 64)):
        made = form(heads, queries, keys, size)
        tile, (first, *_) = tile_of(made, NVIDIA), lowered(NVIDIA, made)
        assert tile is not None
        assert tile.workgroup_bytes(size, size) == first.kernel.module.workgroup_bytes - _epilogue_bytes(first)


def _epilogue_bytes(dispatch: Dispatch) -> int:
    """Bytes of what says which keys queries see, which the formula leaves out."""
    return sum(16 for name, _ in dispatch.kernel.module.workgroup if name in ("seen", "stretch"))
