// @ts-check
/**
 * Replays a recorded command list: uploads, one compute pass, one submit, one readback, in one call from Python.
 *
 * Everything up to the submit is synchronous, so overlapping runs of one session are queued whole, one after another.
 */

/**
 * @typedef {object} Command
 * @property {GPUComputePipeline} pipeline
 * @property {GPUBindGroup} group
 * @property {[number, number, number]} grid
 *
 * @typedef {object} Write
 * @property {GPUBuffer} buffer
 * @property {number} offset
 * @property {ArrayBuffer | Uint8Array} data
 * @property {number} dataOffset
 * @property {number} nbytes
 *
 * @typedef {object} Read
 * @property {GPUBuffer} buffer
 * @property {number} offset
 * @property {number} nbytes
 */

/** Dispatches in one submit; the GPU starts on the first while the rest are encoded. */
const CHUNK = 96;

/** Bytes read back through one staging buffer. */
const PIECE = 4 << 20;

/** @type {GPUErrorFilter[]} */
const SCOPES = ['internal', 'out-of-memory', 'validation'];

/** Staging buffers not in use, by size. @type {WeakMap<GPUDevice, Map<number, GPUBuffer[]>>} */
const pools = new WeakMap();

/** Powers of two, so that a few staging buffers serve all outputs. @param {number} nbytes */
function sizeClass(nbytes) {
  return Math.max(256, 2 ** Math.ceil(Math.log2(nbytes)));
}

/** @param {GPUDevice} device @param {number} nbytes */
function takeStaging(device, nbytes) {
  const size = sizeClass(nbytes);
  const free = pools.get(device)?.get(size)?.pop();
  return free ?? device.createBuffer({ label: 'staging', size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
}

/** @param {GPUDevice} device @param {GPUBuffer} buffer */
function giveStaging(device, buffer) {
  if (!pools.has(device)) pools.set(device, new Map());
  const pool = /** @type {Map<number, GPUBuffer[]>} */ (pools.get(device));
  const free = pool.get(buffer.size) ?? [];
  pool.set(buffer.size, free);
  if (free.length < 4) free.push(buffer);
  else buffer.destroy();
}

/**
 * Queue a write of any length: WebGPU takes multiples of four bytes, so the last word is padded.
 * @param {GPUDevice} device
 * @param {Write} write
 */
export function upload(device, { buffer, offset, data, dataOffset, nbytes }) {
  const source = data instanceof ArrayBuffer ? data : data.buffer;
  const start = data instanceof ArrayBuffer ? dataOffset : data.byteOffset + dataOffset;
  const whole = nbytes & ~3;
  if (whole) device.queue.writeBuffer(buffer, offset, source, start, whole);
  if (whole !== nbytes) {
    const tail = new Uint8Array(4);
    tail.set(new Uint8Array(source, start + whole, nbytes - whole));
    device.queue.writeBuffer(buffer, offset + whole, tail);
  }
}

/**
 * @param {GPUCommandEncoder} encoder
 * @param {Command[]} commands
 */
function encode(encoder, commands) {
  const pass = encoder.beginComputePass();
  let current;
  for (const { pipeline, group, grid } of commands) {
    if (pipeline !== current) pass.setPipeline(pipeline);
    current = pipeline;
    pass.setBindGroup(0, group);
    pass.dispatchWorkgroups(grid[0], grid[1], grid[2]);
  }
  pass.end();
}

/**
 * Wait for `mapped` while keeping the GPU process awake: it polls slowly when nothing talks to it.
 * @param {GPUDevice} device
 * @param {Promise<unknown>} mapped
 */
async function settle(device, mapped) {
  let done = false;
  const watched = mapped.finally(() => { done = true; });
  watched.catch(() => {});
  const deadline = performance.now() + 50;
  while (!done && performance.now() < deadline) {
    device.pushErrorScope('validation');
    await device.popErrorScope();
  }
  await watched;
}

/**
 * @param {GPUCommandEncoder} encoder
 * @param {Read[]} reads
 * @param {GPUBuffer} staging
 * @param {number[]} places where in `staging` each goes
 */
function copy(encoder, reads, staging, places) {
  reads.forEach(({ buffer, offset, nbytes }, i) => {
    encoder.copyBufferToBuffer(buffer, offset, staging, places[i], (nbytes + 3) & ~3);
  });
}

/**
 * Do `work` within error scopes; they are closed again also when it throws.
 * @param {GPUDevice} device
 * @param {() => void} work
 * @returns {Promise<GPUError | null>[]} what the scopes caught
 */
function guarded(device, work) {
  for (const kind of SCOPES) device.pushErrorScope(kind);
  /** @type {Promise<GPUError | null>[]} */
  let scopes = [];
  try {
    work();
  } finally {
    scopes = SCOPES.map(() => device.popErrorScope());
    for (const scope of scopes) scope.catch(() => {}); // a lost device rejects them; who waits hears it
  }
  return scopes;
}

/**
 * What is read, cut into pieces that each get a staging buffer: a large result is copied out while the rest of it is
 * still on its way.
 * @param {GPUDevice} device
 * @param {Read[]} reads
 */
function stage(device, reads) {
  return reads.flatMap(({ buffer, offset, nbytes }, result) => {
    const pieces = [];
    for (let at = 0; at < nbytes; at += PIECE) {
      const length = Math.min(PIECE, nbytes - at);
      const staging = takeStaging(device, length);
      pieces.push({ buffer, offset: offset + at, at, length, result, staging, done: false });
    }
    return pieces;
  });
}

/**
 * The bytes of `piece`, when they have arrived, into the result it belongs to; its staging buffer goes back.
 * @param {GPUDevice} device
 * @param {ReturnType<typeof stage>[number]} piece
 * @param {Uint8Array[]} results
 */
async function collect(device, piece, results) {
  const { at, length, result, staging } = piece;
  await staging.mapAsync(GPUMapMode.READ, 0, (length + 7) & ~7);
  results[result].set(new Uint8Array(staging.getMappedRange(0, (length + 7) & ~7), 0, length), at);
  staging.unmap();
  piece.done = true;
  giveStaging(device, staging);
}

/**
 * Run a recording.
 * @param {GPUDevice} device
 * @param {Command[]} commands
 * @param {Write[]} writes
 * @param {Read[]} reads
 * @returns {Promise<ArrayBuffer[]>} the bytes of each read
 */
export async function play(device, commands, writes, reads) {
  device.pushErrorScope('internal');
  device.pushErrorScope('out-of-memory');
  device.pushErrorScope('validation');
  const pieces = stage(device, reads);
  for (const write of writes) upload(device, write);
  for (let first = 0; first < Math.max(commands.length, 1); first += CHUNK) {
    const encoder = device.createCommandEncoder();
    if (commands.length) encode(encoder, commands.slice(first, first + CHUNK));
    if (first + CHUNK >= commands.length) {
      for (const { buffer, offset, length, staging } of pieces) {
        encoder.copyBufferToBuffer(buffer, offset, staging, 0, (length + 3) & ~3);
      }
    }
    device.queue.submit([encoder.finish()]);
  }
  const scopes = [device.popErrorScope(), device.popErrorScope(), device.popErrorScope()];
  const results = reads.map(({ nbytes }) => new Uint8Array(nbytes));
  const arrivals = Promise.all(pieces.map((piece) => collect(device, piece, results)));
  try {
    if (pieces.length) await settle(device, arrivals);
    for (const error of await Promise.all(scopes)) if (error) throw error;
    return results.map(({ buffer }) => buffer);
  } catch (error) {
    arrivals.catch(() => {});
    for (const { staging, done } of pieces) if (!done) staging.destroy();
    for (const failure of await Promise.all(scopes).catch(() => [])) if (failure) throw failure;
    throw error;
  }
}

/**
 * @typedef {object} Place
 * @property {string} name
 * @property {string} type
 * @property {number[]} dims
 * @property {GPUBuffer} buffer
 * @property {number} offset
 * @property {number} nbytes
 *
 * @typedef {object} Replay A run in which Python has no part, as `WebGpuDevice.replay_object` describes it.
 * @property {GPUDevice} device
 * @property {Command[]} commands
 * @property {Place[]} uploads
 * @property {Place[]} downloads
 * @property {boolean} live false once its memory is freed
 */

/** @param {Place} place @param {{type: string, dims: number[]} | undefined} tensor */
function fits({ type, dims }, tensor) {
  return tensor !== undefined && tensor.type === type && tensor.dims.length === dims.length
    && dims.every((dim, axis) => dim === tensor.dims[axis]);
}

/**
 * True where `replay` runs exactly these feeds and gives exactly these outputs.
 * @param {Replay} replay
 * @param {Record<string, {type: string, dims: number[]}>} feeds
 * @param {string[] | null} fetches null: all
 * @param {number} outputs how many the model has
 */
export function matches({ live, uploads, downloads }, feeds, fetches, outputs) {
  const names = fetches ?? downloads.map(({ name }) => name);
  return live && uploads.length === Object.keys(feeds).length && uploads.every((place) => fits(place, feeds[place.name]))
    && downloads.length === (fetches ? fetches.length : outputs)
    && names.every((name) => downloads.some((place) => place.name === name));
}

/**
 * Run a replay on `feeds`.
 * @param {Replay} replay
 * @param {Record<string, {data: ArrayBuffer | string[]}>} feeds
 */
export async function run({ device, commands, uploads, downloads }, feeds) {
  const writes = uploads.filter(({ nbytes }) => nbytes).map(({ name, buffer, offset, nbytes }) => (
    { buffer, offset, nbytes, data: /** @type {ArrayBuffer} */ (feeds[name].data), dataOffset: 0 }));
  const results = await play(device, commands, writes, downloads);
  return Object.fromEntries(downloads.map(({ name, type, dims }, i) => [name, { type, dims, data: results[i] }]));
}
