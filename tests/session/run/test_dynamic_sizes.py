"""Plans that serve every size: how many there are, what they hold, and what runs of new sizes cost (null device).

PYRUNTIME_VERIFY is on in tests: each plan's memory is proved for the largest sizes of its ranges.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeAlias

import numpy as np
import pytest

from pyruntime.device.base import Bound
from pyruntime.device.null import NullDevice
from pyruntime.errors import OrtError
from pyruntime.ir import DType, HostTensor
from pyruntime.kernels import Limits, Target
from pyruntime.session import InferenceSession
from pyruntime.session.run.dynamic_dimensions import DynamicDimensions
from pyruntime.session.run.profiling import Trace
from pyruntime.session.run.program import Program
from tests import open_models
from tests.models import text_model
from tests.open_models import HEADS, LAYERS, WIDTH, decoder_feeds, encoder_feeds, listener_feeds, picture_feeds
from tests.session import models
from tests.session.doubles import run_on

Feeds: TypeAlias = dict[str, Any]

TARGETS = {
    "default": Target(),
    "desktop": Target(
        Limits(storage_buffers=10, workgroup_bytes=49152, invocations=1024, workgroup_x=1024), vendor="nvidia"
    ),
}


class Counting(NullDevice):
    """Counts recordings made."""

    def __init__(self, target: Target | None = None) -> None:
        super().__init__(target)
        self.recorded = 0

    def record(self, commands: Any, repeated: Any = ()) -> int:
        self.recorded += 1
        made: list[Bound] = list(commands)
        return super().record(made, repeated)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Pipelines, buffers and recordings made so far."""
        return self.ledger.pipelines, sum(name == "allocate" for name, _ in self.calls), self.recorded


def on(device: NullDevice, model: bytes, use: Callable[[InferenceSession, Program], Coroutine[Any, Any, None]]) -> None:
    """`use` a session on `device`; nothing may be left there when it is released."""

    async def main() -> None:
        session = await InferenceSession.create(model)
        assert session._program is not None
        try:
            await use(session, session._program)
        finally:
            session.release()

    run_on(device, main)


def pictures(smallest: int, step: int) -> Callable[[random.Random], Feeds]:
    def drawn(r: random.Random) -> Feeds:
        sides = (step * r.randint(smallest // step, 200 // step) for _ in range(2))
        return picture_feeds(r.randint(1, 4), *sides)

    return drawn


def rows(r: random.Random) -> Feeds:
    return {"x": np.zeros((r.randint(1, 500), 4), np.float32)}


COUNTED: dict[str, tuple[Callable[[], bytes], Callable[[random.Random], Feeds]]] = {
    "encoder": (open_models.encoder, lambda r: encoder_feeds(1, r.randint(1, 500))),
    "encoder of batches": (open_models.encoder, lambda r: encoder_feeds(r.randint(1, 4), r.randint(2, 500))),
    "listener": (open_models.listener, lambda r: listener_feeds(1, r.randint(1, 500))),
    "convolutions": (open_models.convolutions, pictures(16, 1)),
    "mixed layouts": (open_models.mixed_layouts, pictures(48, 1)),
    "unet": (open_models.unet, pictures(16, 4)),
    "unet, linear": (lambda: open_models.unet("linear"), pictures(16, 4)),
    "unet, by sizes": (lambda: open_models.unet(by_sizes=True), pictures(16, 1)),
    "unet, linear by sizes": (lambda: open_models.unet("linear", by_sizes=True), pictures(16, 1)),
    "sizes by float": (lambda: open_models.by_float(5), pictures(16, 1)),
    "unet, cubic by sizes": (lambda: open_models.unet("cubic", by_sizes=True), pictures(16, 1)),
    "positions": (open_models.positions, rows),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", COUNTED)
def test_plans__of_300_runs_of_random_sizes__are_few_and_made_early(
    name: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single row is another computation than several: it comes once in time, and by chance later.

    After 40 runs (100 where pads are clipped) each is one whose plan is there, so that JavaScript can repeat it.
    """
    monkeypatch.setattr("pyruntime.session.run.program.REPEATED", 1)
    model, draw = COUNTED[name]
    device, r = NullDevice(TARGETS[target]), random.Random(14)
    singles = {
        "encoder": [encoder_feeds(1, 1)],
        "positions": [{"x": np.ones((1, 4), np.float32)}],
        "listener": [listener_feeds(1, 1), listener_feeds(1, 2)],
    }
    first = dict(enumerate(singles.get(name, []), 5))
    # Pads that are clipped are other plans: for one picture and for several, in ranges of heights and widths.
    most, early = (8, 100) if name == "sizes by float" else (6, 40)

    async def use(session: InferenceSession, program: Program) -> None:
        pipelines, held = [], []
        plans: dict[int, Any] = {}
        outputs = [o.name for o in session.get_outputs()]
        for n in range(300):
            feeds = first[n] if n in first else draw(r)
            known = {k: HostTensor.of(v, DType.from_numpy(v.dtype)) for k, v in feeds.items()}
            assert n <= early or program.replayable(known, outputs, ()), {k: v.shape for k, v in feeds.items()}
            await session.run_async(None, feeds)
            pipelines.append(device.ledger.pipelines)
            held.append(device.ledger.total)
            plans |= {id(stage): stage for stage in program.roots}
        assert len(plans) <= most, [(p.sizes.ranges if p.sizes else p.signature) for p in plans.values()]
        assert pipelines[early] == pipelines[-1]
        assert held[-1] <= max(held[:100]), "held bytes stay flat"
        assert not program.dynamic_dimensions.fixed

    on(device, model(), use)


def kept(outputs: Iterable[str]) -> dict[str, None]:
    return {n: None for n in outputs if n.startswith("present")}


async def decode(session: InferenceSession, tokens: int, after: Callable[[int], None], first: int = 7) -> None:
    """A prompt of `first` tokens and then single ones; caches stay on the device. `after`: each, with the length."""
    names = [o.name for o in session.get_outputs()]
    shape = 1, HEADS, 0, WIDTH // HEADS
    layers = [f"{layer}_{kind}" for layer in range(LAYERS) for kind in ("key", "value")]
    caches: Feeds = {f"past_{n}": np.zeros(shape, np.float32) for n in layers}
    past, new = 0, first
    for _ in range(tokens):
        found = await session._run_values(
            {**decoder_feeds(1, new, past, caches=False), **caches}, names, None, kept(names)
        )
        caches = {n.replace("present", "past"): v for n, v in found.items() if n != "logits"}
        past, new = past + new, 1
        assert all(v.type.shape == (1, HEADS, past, WIDTH // HEADS) for v in caches.values())
        after(past)


@pytest.mark.parametrize("target", TARGETS)
def test_decoding__of_1000_tokens__makes_nothing_but_where_capacity_doubles(target: str) -> None:
    device = Counting(TARGETS[target])

    async def use(session: InferenceSession, program: Program) -> None:
        seen: list[tuple[int, tuple[int, ...]]] = []
        await decode(session, 1000, lambda past: seen.append((past, (len(program.roots), *device.counts))))
        changed = [past for (past, now), (_, before) in zip(seen[1:], seen, strict=False) if now != before]
        edges = 7, 16, 32, 64, 128, 256, 512, 1024  # where caches get a buffer of twice the size
        assert all(any(0 < past - edge <= 6 for edge in edges) for past in changed), changed
        plans, pipelines = ({now[i] for past, now in seen if 600 < past < 1000} for i in (0, 1))
        assert len(plans) == len(pipelines) == 1 and max(plans) <= 6
        assert not program.dynamic_dimensions.fixed

    on(device, open_models.decoder(), use)


def test_conversations__of_random_prompts__meet_the_same_plans() -> None:
    """300 runs and more: no plan beyond the sixth, no pipeline after the 40th run, and what is held stays flat."""
    device, r = NullDevice(), random.Random(5)

    async def use(session: InferenceSession, program: Program) -> None:
        plans: dict[int, Any] = {}
        counts: list[tuple[int, int]] = []

        def note(past: int) -> None:
            plans.update({id(stage): stage for stage in program.roots})
            counts.append((device.ledger.pipelines, program.cache.held))

        await decode(session, 4, note, 1)  # a prompt of one token is another computation than a longer one
        while len(counts) < 500:
            await decode(session, r.randint(3, 14), note, r.randint(2, 300))
        assert len(plans) <= 6 and not program.dynamic_dimensions.fixed
        assert counts[40] == counts[-1]

    on(device, open_models.decoder(), use)


def test_constants__of_several_plans__are_on_the_device_once_and_leave_with_the_last() -> None:
    """Weights and what is computed of them (models.staged: a transposed one)."""
    device = NullDevice()

    async def use(session: InferenceSession, program: Program) -> None:
        held = []
        for feeds in (encoder_feeds(1, 5), encoder_feeds(1, 9), encoder_feeds(3, 9), encoder_feeds(1, 700)):
            await session.run_async(None, feeds)
            held.append(program.cache.weights.nbytes)
        assert len(program.roots) == 4 and len(set(held[1:])) == 1, held
        while program.roots:
            assert program.cache.weights.nbytes
            program.roots.pop().release()
            program.cache.weights.sweep()
        assert program.cache.weights.nbytes == 0 and device.ledger.total == 0

    on(device, open_models.encoder(), use)

    async def computed(session: InferenceSession, program: Program) -> None:
        held = []
        for n in (2, 3, 70, 5000):
            await session.run_async(None, {"x": np.ones((n, 160), np.float32)})
            held.append(program.cache.weights.nbytes)
        assert len(set(held)) == 1 and held[0] >= 160 * 160 * 4, held

    on(NullDevice(), models.staged(), computed)


@pytest.mark.parametrize("model", [open_models.needs_number(), models.staged(), models.segmented()])
def test_models__that_wait_for_values_or_need_a_number__stay_concrete_and_say_why(model: bytes) -> None:
    shape = {open_models.needs_number(): (4,), models.staged(): (160,)}.get(model, (2, 2))

    async def use(session: InferenceSession, program: Program) -> None:
        for n in (4, 5, 7, 9, 4):
            (*_, y) = await session.run_async(None, {"x": np.ones((n, *shape), np.float32)})
        assert program.dynamic_dimensions.reasons and all(program.dynamic_dimensions.reasons.values())
        assert not any(stage.sizes for stage in program.roots)
        assert not isinstance(y, OrtError)

    on(NullDevice(), model, use)


def test_sizes__0_and_1_between_others__get_plans_of_their_own() -> None:
    async def use(session: InferenceSession, program: Program) -> None:
        for n in (3, 8, 0, 1, 33, 0, 1, 2, 20):
            (y,) = await session.run_async(None, {"x": np.ones((n, 4), np.float32)})
            assert y.shape == (n, 4)
        concrete = [dict(s.signature[0])["x"].shape for s in program.roots if s.sizes is None]  # type: ignore[union-attr]
        assert {(0, 4), (1, 4)} <= set(concrete) and len(program.roots) <= 6

    on(NullDevice(), open_models.positions(), use)
    on(NullDevice(), models.double(), use)


def test_a_size__that_is_by_chance_a_number_of_the_model__stays_open() -> None:
    """A batch of 2 with 2 heads, a length of 16 with as many channels: these plans are pinned, others are not."""

    async def use(session: InferenceSession, program: Program) -> None:
        for batch, length in ((2, 16), (3, 8), (2, 16), (2, 2), (16, 16), (3, 50), (5, 7)):
            (y,) = await session.run_async(None, encoder_feeds(batch, length))
            assert y.shape == (batch, length, WIDTH)
        assert not program.dynamic_dimensions.fixed
        assert any(s.sizes and len(s.sizes.names) == 2 for s in program.roots)

    on(NullDevice(), open_models.encoder(), use)


def test_ranges__beyond_what_the_device_can_do__are_tried_at_their_least() -> None:
    """The range's largest size would need more workgroups than the device has; these sizes do not."""
    device = NullDevice(Target(Limits(workgroups=8)))

    async def use(session: InferenceSession, program: Program) -> None:
        for n in (8, 9, 70, 300, 500):
            await session.run_async(None, {"x": np.ones((n, 4), np.float32)})
        assert not program.dynamic_dimensions.fixed

    on(device, models.double(), use)


def test_dynamic_dimensions__of_sizes_all_just_above_powers_of_two__make_ranges_a_plan_is_used_for() -> None:
    from pyruntime.ir import DType, TensorType
    from pyruntime.onnx.importer.model import import_model
    from pyruntime.onnx.reader import read_model
    from pyruntime.session.run.dynamic_dimensions import WASTE, scale

    dynamic_dimensions = DynamicDimensions(
        import_model(read_model(models.double(("a", "b", "c", "d", "e", "f")))).graph
    )
    for size in (64, 65, 129, 513):
        types = {"x": TensorType(DType.FLOAT, (size,) * 6)}
        dynamic_dimensions.observe(types)
        _, sizes = dynamic_dimensions.widen(types)
        assert sizes is None or scale(sizes, (size,) * 6) <= WASTE


def test_pads__that_are_0_by_chance__are_in_plans_for_others_too() -> None:
    """A pad of max(0, 2 ceil(n / 2) - 1 - n) is 0, for odd sizes as for even ones; no plan takes it for a view."""

    async def use(session: InferenceSession, program: Program) -> None:
        for sides in ((32, 48), (21, 40), (50, 19), (33, 35), (9, 100), (64, 64)):
            (y,) = await session.run_async(None, picture_feeds(2, *sides))
            assert y.shape == (2, 3, *(3 * ((n - 1) // 2) // 2 for n in sides))
        assert not program.dynamic_dimensions.fixed and any(stage.sizes for stage in program.roots)

    on(NullDevice(), open_models.by_float(5, 1), use)


def test_trace__of_a_plan_for_every_size__has_the_shapes_of_the_run() -> None:
    device = NullDevice()

    async def use(session: InferenceSession, program: Program) -> None:
        session._trace = Trace("profile")
        for length in (9, 20, 33):
            await session.run_async(None, encoder_feeds(1, length))
        events = json.loads(json.dumps(session._trace.events))
        shapes = [e["args"]["output_type_shape"] for e in events if e["cat"] == "Node"]
        assert [{"float": [1, 33, WIDTH]}] in shapes and any(stage.sizes for stage in program.roots)

    on(device, open_models.encoder(), use)


@pytest.mark.parametrize("fed", [False, True])
def test_one_hot__of_a_depth_that_is_fed_or_a_size__is_in_plans_for_others_too(fed: bool) -> None:
    text = """
    agraph (int64[a] x, float[b] y{fed}) => (z) <float[2] values = {{0, 1}}> {{
      {depth}
      hot = OneHot (x, depth, values)
      z = Neg (hot)
    }}"""
    model = text_model(text.format(fed=", int64[1] depth" * fed, depth="" if fed else "depth = Shape (y)"))

    async def use(session: InferenceSession, program: Program) -> None:
        for n, depth in ((3, 4), (5, 6), (9, 7), (7, 12), (3, 4)):
            feeds: Feeds = {"x": np.arange(n), "y": np.ones(depth, np.float32)}
            (z,) = await session.run_async(None, feeds | ({"depth": np.array([depth])} if fed else {}))
            assert z.shape == (n, depth)
        assert any(stage.sizes for stage in program.roots)

    on(NullDevice(), model.SerializeToString(), use)
