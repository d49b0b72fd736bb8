"""web/plans/plan.js refuses damaged files, and forged ones whose hash is right, before anything is allocated."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import pytest

from e2e.harness.script import Script
from pyruntime.compiler.saved import FORMAT
from pyruntime.session.aot.compile_ahead import compile_model
from tests.compiler.test_saved import DIGITS, SHAPES, broken_plans
from tests.session.aot.test_cached_plan import kept_file

REASONS = """
const { readPlan, Refused } = await import('/src/web/plans/plan.js');
const adapter = await navigator.gpu.requestAdapter();
const device = await adapter.requestDevice();
const reasons = [];
for (const text of plans) {
  try {
    await readPlan(decode(text).buffer, { version: env.versions.pyruntime, device, vendor: '' });
    reasons.push('was read');
  } catch (error) {
    reasons.push(error instanceof Refused ? error.message : `${error.name} ${error.message}`);
  }
}
return reasons;
"""


def test_broken_plans__all__are_refused_with_a_reason(script: Script) -> None:
    good = compile_model(DIGITS)
    plans = [data for _, data in broken_plans() if data != good]
    assert len(plans) >= 100
    texts = [base64.b64encode(data).decode() for data in (*plans, good)]
    *reasons, last = script(REASONS, plans=texts)
    assert last == "was read"
    assert [r for r in reasons if not r.startswith("it ")] == []


FORGED = """
h => h.programs[0].plan.commands[0].regions[0][2] = 2 ** 40
h => h.programs[0].plan.commands[0].regions[0][1] = 99
h => h.programs[0].plan.commands[0].regions[0][3] = 2 ** 31
h => h.programs[0].plan.commands[0].regions[0][2] = 4
h => h.programs[0].plan.commands[0].regions[0][0] = 7
h => h.programs[0].plan.commands[0].shader = 1e6
h => h.programs[0].plan.commands[0].grid = [1e9, 1, 1]
h => h.programs[0].plan.commands[0].grid = [-1, 1, 1]
h => h.programs[0].plan.commands[0].grid = [1]
h => h.programs[0].plan.commands[0].grid = [65535, 65535, 65535]
h => h.programs[0].plan.commands[0].grid = [65535, 65535, 1]
h => h.programs[0].plan.commands[0].scaled = [0, 0, 0]
h => h.programs[0].plan.commands[0].about[2] = -1
h => h.programs[0].plan.commands[0].about = null
h => h.programs[0].plan.commands[0].params = [0, 1e9]
h => h.programs[0].plan.arenas = [2 ** 50]
h => h.programs[0].plan.arenas = Array(1000).fill(256)
h => h.programs[0].plan.arenas = [-1]
h => h.programs[0].plan.arenas = null
h => h.programs[0].plan.params = [0, 2 ** 40]
h => h.programs[0].plan.uploads[0].dims = [2 ** 30, 2 ** 30]
h => h.programs[0].plan.uploads[0].bits = 7
h => h.programs[0].plan.uploads[0].bits = 16
h => h.programs[0].plan.uploads[0].type = 'float16'
h => h.programs[0].plan.uploads[0].type = 'constructor'
h => h.programs[0].plan.downloads[0].bits = 8
h => h.programs[0].plan.downloads[0].bits = 16
h => h.programs[0].plan.downloads[0].type = 'string'
h => Object.assign(h.programs[0].plan.downloads[0], { type: 'int8', bits: 8 })
h => h.programs[0].plan.numbers = [numbers({ type: 'int64', bits: 32 }, h)]
h => h.programs[0].plan.numbers = [numbers({ type: 'float32', bits: 32 }, h)]
h => h.programs[0].plan.numbers = [numbers({ type: 'int4', bits: 4 }, h)]
h => h.programs[0].plan.uploads[0].name = 5
h => h.programs[0].plan.uploads[0].name = '__proto__'
h => h.programs[0].plan.downloads = []
h => h.programs[0].plan.downloads[0].name = 'other'
h => h.programs[0].plan.expressions = [[[1, [0]]]]
h => h.programs[0].plan.patches = [[1e9, 'u32', 0]]
h => h.programs[0].plan.constants[0] = [1e6, 'float32', [1]]
h => h.programs[0].plan.shaders = [1e6]
h => h.programs[0].plan.commands = 'x'
h => h.programs[0].plan = null
h => h.programs[0].computed = { x: 0 }
h => h.programs[0].scalars = null
h => h.programs[0].scalars = ['other']
h => h.programs[0].scalars = ['image']
h => h.programs[0].scalars = [0]
h => h.programs = {}
h => h.programs = []
h => h.programs[0].plan.bounds = null
h => h.programs[0].plan.bounds = [null]
h => h.programs[0].plan.bounds = [bound({ input: 'image' })]
h => h.programs[0].plan.bounds = [bound({ input: 'other' })]
h => h.programs[0].plan.bounds = [bound({ least: '0' })]
h => h.programs[0].plan.bounds = [bound({ expressions: [-1, 0] })]
h => h.programs[0].plan.bounds = [bound({ expressions: [-1] })]
h => h.programs[0].plan.bounds = [bound({ texts: ['', ''] })]
h => h.programs[0].plan.bounds = [bound({ texts: ['', '', 1] })]
h => h.programs[0].plan.unread = null
h => h.programs[0].plan.unread = [{}]
h => h.programs[0].plan.unread = [{ name: 'x', type: 'float32', dims: [1.5], scaled: [] }]
h => h.programs[0].plan.unread = [{ name: 'x', type: 'float32', dims: [1], scaled: [0] }]
h => h.programs[0].plan.nodes = [['a', 'b', 'c', 'nowhere', '', []]]
h => h.programs[0].plan.repeated = null
h => h.programs[0].plan.repeated = [[0, 1, 2]]
h => h.programs[0].plan.repeated = [[0, 0, 2, -1]]
h => h.programs[0].plan.repeated = [[0, 99, 2, -1]]
h => h.programs[0].plan.repeated = [[0, 1, -1, -1]]
h => h.programs[0].plan.repeated = [[0, 1, 2 ** 30, -1]]
h => h.programs[0].plan.repeated = [[0, 1, 2, 0]]
h => h.programs[0].plan.repeated = [[0, 2, 2, -1], [1, 2, 2, -1]]
h => h.programs[0].plan.repeated = [[1, 1, 2, -1], [0, 1, 2, -1]]
h => h.programs[0].plan.repeated = [[0, 2, 2 ** 19, -1], [0, 1, 2 ** 10, -1]]
h => h.programs[0].plan.nodes = null
h => h.programs[0].plan.memory = [-1, 0, 0, 0, 0]
h => h.programs[0].plan.memory = [1, 1, 1, 1]
h => h.programs = Array(65).fill(h.programs[0])
h => h.constants[0][1] = 2 ** 52
h => h.constants[0][2] = 2 ** 40
h => h.constants[0][3] = 50
h => h.constants[0][4] = 2 ** 40
h => h.constants[0] = []
h => h.constants[0][0] = 2
h => h.constants[0][0] = -1
h => h.model.inside = true
h => h.files = null
h => h.files = {}
h => h.files = [null]
h => h.files = [{ path: 'a', nbytes: -1, hash: '' }]
h => h.files = [{ path: 'a', nbytes: 2 ** 60, hash: '' }]
h => h.files = [{ path: 'a', nbytes: 4 }]
h => h.files = [{ path: '', nbytes: 4, hash: '' }]
h => h.files = [{ path: '../a', nbytes: 4, hash: '' }]
h => h.files = [{ path: 'a/../../b', nbytes: 4, hash: '' }]
h => h.files = [{ path: '/a', nbytes: 4, hash: '' }]
h => h.files = [{ path: 'https://example.org/a', nbytes: 4, hash: '' }]
h => h.files = [{ path: 'a\\\\b', nbytes: 4, hash: '' }]
h => { h.files = [{ path: 'a', nbytes: 4, hash: '' }]; h.constants[0][0] = 2; }
h => h.buffers[0][0] = 2 ** 27
h => h.buffers[0][0] = 2 ** 60
h => h.buffers = Array(1e5).fill([256, 1])
h => h.buffers[0] = [h.buffers[0][0], 2]
h => h.buffers[0] = [h.buffers[0][0]]
h => h.shaders = [1]
h => h.model = null
h => h.model.nbytes = -1
h => h.package = '9.9.9'
h => h.target.limits.storage_buffers = 1e6
h => h.target.limits = {}
h => h.target.features = ['float32-filterable-and-more']
h => h.target.vendor = 'other'
h => h.target.vendor = 5
h => h.target.features = 'subgroups'
h => h.model.inside = 0
h => h.inputs[0].isTensor = 'yes'
h => h.inputs.push(h.inputs[0])
h => h.outputs.push(h.outputs[0])
h => h.outputs[0].type = 'int64'
h => h.inputs = [null]
h => h.outputs = []
h => h.computed = [1]
h => delete h.decoder
h => h.decoder = []
h => h.decoder = { positions: 0, rows: {}, local: null }
h => h.decoder = { positions: null, rows: null, local: null }
h => h.decoder = { positions: null, rows: { x: -1 }, local: null }
h => h.decoder = { positions: null, rows: {}, local: {} }
h => h.decoder = { positions: null, rows: {}, local: { kept: 1, drop: 0, chunk: 1, turns: [] } }
h => h.decoder = turning({ caches: [1], cos: [], sin: [], interleaved: true })
h => h.decoder = turning({ caches: [], cos: [1], sin: [], interleaved: true })
h => h.decoder = turning({ caches: [], cos: ['1'], sin: [1], interleaved: true })
h => h.decoder = turning({ caches: [], cos: [], sin: [] })
h => { let e = []; for (let i = 0; i < 100; i++) e = [[1, [['//', e, []]]]]; h.programs[0].plan.expressions = [e]; }
h => h.programs[0].sizes = sizes({ ranges: [[0, 'x']] })
h => h.programs[0].sizes = sizes({ ranges: [[0]] })
h => h.programs[0].sizes = sizes({ ranges: [[9, 1]] })
h => h.programs[0].sizes = sizes({ grows: [] })
h => h.programs[0].sizes = sizes({ grows: [1] })
h => h.programs[0].sizes = sizes({ guards: [[[[1, [0]]], '<', 1]] })
h => h.programs[0].sizes = sizes({ values: { image: 0 } })
h => h.programs[0].sizes = sizes({ waste: '1' })
""".strip().splitlines()


FORGED_CACHES = """
(h, p) => p.inputs = null
(h, p) => p.inputs = {}
(h, p) => p.inputs = [5]
(h, p) => p.inputs = ['__proto__']
(h, p) => p.inputs = ['nothing']
(h, p) => p.inputs.push(p.inputs[0])
(h, p) => p.inputs = Array(1e5).fill('x')
(h, p) => p.inputs = []
(h, p) => p.outputs = null
(h, p) => p.outputs = ['nothing']
(h, p) => p.outputs = [p.inputs[0]]
(h, p) => p.outputs = [p.plan.kept[0].name]
(h, p) => p.computed = { [p.inputs[0]]: 0 }
(h, p) => p.plan.external = []
(h, p) => p.plan.external[0].region[3] = 2 ** 50
(h, p) => p.plan.external[0].region[2] = 256
(h, p) => p.plan.external[1].region[1] = p.plan.external[0].region[1]
(h, p) => p.plan.external[0].dims = [2 ** 40, 2 ** 40]
(h, p) => p.plan.kept = null
(h, p) => p.plan.kept = [null]
(h, p) => p.plan.kept = [{}]
(h, p) => p.plan.kept.push(p.plan.kept[0])
(h, p) => p.plan.kept[0].name = 'other'
(h, p) => p.plan.kept[0].name = '__proto__'
(h, p) => p.plan.kept[0].name = p.plan.downloads[0].name
(h, p) => p.plan.kept[0].input = p.plan.kept[1].input
(h, p) => p.plan.kept[0].input = p.plan.uploads[0].name
(h, p) => p.plan.kept[0].input = 7
(h, p) => p.plan.kept[0].type = 'int4'
(h, p) => p.plan.kept[0].bits = 1
(h, p) => p.plan.kept[0].dims = [1]
(h, p) => p.plan.kept[0].dims[2] = 2 ** 60
(h, p) => p.plan.kept[0].dims[2] = -1
(h, p) => p.plan.kept[0].scaled = [1e6, -1, -1, -1]
(h, p) => p.plan.kept[0].scaled = [0]
(h, p) => p.plan.kept[0].axis = 9
(h, p) => p.plan.kept[0].axis = 0.5
(h, p) => p.plan.kept[0].capacity = 99
(h, p) => p.plan.kept[0].capacity = 'x'
(h, p) => p.plan.kept[0].type = p.plan.external[0].type = 'int32'
(h, p) => p.plan.external[0].bits = p.plan.kept[0].bits = 64
(h, p) => p.plan.kept[0].given = 5
(h, p) => p.plan.kept[0].given = { dims: [1], scaled: [] }
(h, p) => p.plan.kept[0].given = { dims: null, scaled: [] }
(h, p) => p.plan.kept[0].first = {}
(h, p) => p.plan.kept[0].first = { input: 3, offset: 0, expression: -1 }
(h, p) => p.plan.kept[0].end = { input: '', offset: 2 ** 60, expression: -1 }
(h, p) => p.plan.kept[0].end = { input: '', offset: 0, expression: 1e6 }
(h, p) => p.values = null
(h, p) => p.values = { nothing: [0, 4] }
(h, p) => p.values = { [p.inputs[0]]: [0, 4] }
(h, p) => p.values = { [p.plan.uploads[0].name]: [0, 2 ** 40] }
(h, p) => p.values = { [p.plan.uploads[0].name]: [2 ** 40, 4] }
(h, p) => p.values = { [p.plan.uploads[0].name]: [-4, 4] }
(h, p) => p.values = { [p.plan.uploads[0].name]: null }
(h, p) => h.outputs = h.outputs.slice(1)
""".strip().splitlines()

FORGED_CAPACITIES = """
(h, p) => p.plan.kept[0].axis = -1
(h, p) => p.plan.kept[0].given = null
(h, p) => p.plan.kept[0].scaled = []
(h, p) => p.plan.kept[0].given.scaled = p.plan.kept[0].given.scaled.map(() => 1e6)
(h, p) => p.plan.expressions = p.plan.expressions.map(() => [[1, [['//', [[1, [0]]], [[2, []]]]]]])
(h, p) => p.sizes.values = null
(h, p) => p.sizes.values = { x: 99 }
(h, p) => p.sizes.values = { x: -1 }
(h, p) => p.sizes = null
""".strip().splitlines()

FORGED_ROWS = """
(h, p) => p.plan.kept[0].first = null
(h, p) => p.plan.kept[0].end = null
(h, p) => p.plan.kept[0].axis = -1
(h, p) => p.plan.kept[0].first.expression = 1e6
(h, p) => p.plan.kept[0].first.offset = null
(h, p) => p.plan.kept[0].first.input = '__proto__'
(h, p) => p.plan.kept[0].first.input = 'nothing'
(h, p) => p.plan.kept[0].first.input = p.inputs[0]
(h, p) => p.plan.kept[0].end.input = p.plan.uploads.find(({ type }) => type === 'float32').name
""".strip().splitlines()


PARTS = """
const local = { kept: 1, drop: 1, chunk: 1 };
const turning = (turn) => ({ positions: null, rows: {}, local: { ...local, turns: [turn] } });
const sizes = (change) => ({ ranges: [[1, 2]], grows: [false], guards: [], values: {}, waste: 1, ...change });
const bound = (changed) => ({ input: '', least: 0, most: 1, expressions: [-1, -1], texts: ['', '', ''], ...changed });
const numbers = (type, h) => ({
  transfer: { ...h.programs[0].plan.downloads[0], dims: [2], ...type }, elements: [1, 2], expressions: [-1, -1] });
"""


def plans_with(good: bytes, changes: list[str], script: Script) -> list[bytes]:
    """A plan with each of these changes of its header, its hash right again."""
    _, _, packed, _, _, _ = struct.unpack_from("<8sIIII32s", good)
    header = json.loads(zlib.decompress(good[56 : 56 + packed]))
    headers = script(
        f"{PARTS} const changes = [{', '.join(changes)}];"
        "return changes.map((change) => { const h = structuredClone(header);"
        "change(h, h.programs.find(({ plan }) => plan.kept.length)); return JSON.stringify(h); })",
        header=header,
    )
    sections = good[56 + packed :]
    plans = []
    for text in headers:
        data = zlib.compress(text.encode())
        body = data + sections
        head = struct.pack(
            "<8sIIII32s", b"pyrtplan", FORMAT, len(data), len(text.encode()), len(sections), sha256(body).digest()
        )
        plans.append(head + body)
    return plans


def forged(good: bytes, changes: list[str], script: Script) -> list[tuple[str, str]]:
    """Changes of the header of a plan, its hash right again, with why the plan is refused."""
    plans = plans_with(good, changes, script)
    *reasons, last = script(REASONS, plans=[base64.b64encode(p).decode() for p in (*plans, good)])
    assert last == "was read"
    return list(zip(changes, reasons, strict=True))


def test_forged_headers__right_hash__are_refused_before_anything_is_allocated(script: Script) -> None:
    found = forged(compile_model(DIGITS), FORGED, script)
    assert [pair for pair in found if not pair[1].startswith("it ")] == []


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("concat", [*FORGED_CACHES, *FORGED_CAPACITIES]),
        ("group_query_scalar", [*FORGED_CACHES, *FORGED_CAPACITIES]),
        ("static scatter", [*FORGED_CACHES, *FORGED_ROWS]),
    ],
)
def test_forged_caches__right_hash__are_refused_before_anything_is_allocated(
    name: str, changes: list[str], script: Script
) -> None:
    with ThreadPoolExecutor(1) as thread:  # Playwright's loop runs in this one
        good = thread.submit(kept_file, name).result()
    found = forged(good, changes, script)
    assert [pair for pair in found if not pair[1].startswith("it ")] == []


def test_forged_grid__of_as_many_workgroups_as_a_size_says__fails_before_it_is_queued(script: Script) -> None:
    change = """h => {
      const { plan } = h.programs[0];
      plan.expressions.push([[60000, []]]);
      plan.commands[0].scaled = [0, 0, 0].fill(plan.expressions.length - 1);
    }"""
    (plan,) = plans_with(compile_model(DIGITS, SHAPES), [change], script)
    found = script(
        """
        const said = [];
        const { info } = console;
        console.info = (text) => said.push(text);
        const session = await InferenceSession.create(decode(model), { plan: decode(plan) });
        const image = new Tensor('float32', new Float32Array(512), [2, 1, 16, 16]);
        const { probabilities } = await session.run({ image });
        console.info = info;
        await session.release();
        return { said, sum: probabilities.data.reduce((a, b) => a + b) };
        """,
        model=DIGITS.read_bytes(),
        plan=plan,
    )
    assert "the plan is damaged: 60000,60000,60000 workgroups" in found["said"][0]
    assert found["sum"] == pytest.approx(2, abs=1e-4)
