// @ts-check
/**
 * Tensors that stay on the GPU, by JavaScript's numbers.
 *
 * Python owns their memory and has other numbers for them. Runs without Python create further tensors in this memory: with rows after those
 * of another tensor, or where no tensor is left. Python is told of these when a run needs it (`forPython`).
 */

/**
 * @typedef {object} Memory
 * @property {number} id of Python's buffer
 * @property {GPUBuffer} buffer
 * @property {GPUDevice} [device] its device; undefined: the device of all plans that run without Python
 * @property {{axis: number, rows: number} | null} reserved rows that it has along an axis, more than its tensors have; null: it holds exactly one shape
 * @property {Set<Remote>} tensors in it
 * @property {number[]} holders Python's numbers that keep it alive after their tensors were disposed
 * @property {Spares | null} spares the list that it joins when its last tensor is disposed; null: it is freed
 *
 * @typedef {object} Remote a tensor
 * @property {number} number
 * @property {string} type
 * @property {number[]} dims
 * @property {Memory} memory
 * @property {number} python Python's number, 0 where it has none yet
 * @property {number} [counted] valid rows, where runs overwrite the others in its memory; undefined: all
 *
 * @typedef {Memory[]} Spares memory of one session without tensors
 */

/** Limit of unused memory blocks that a session keeps for later outputs: enough for the caches of 64 layers. */
const SPARES = 128;

/** Bytes up to which a memory block is used for any smaller output, such as the caches after a prompt of any length. */
const SMALL = 1 << 20;

export class Tensors {
  /** @type {Map<number, Remote>} */
  #remotes = new Map();
  /** @type {Map<number, Remote>} */
  #byPython = new Map();
  /** @type {Map<number, Memory>} */
  #memories = new Map();
  #last = 0;
  #python;

  /** @param {{share_memory: (number: number, type: string, dims: number[], counted?: number) => number, dispose: (number: number) => void}} python */
  constructor(python) {
    this.#python = python;
  }

  get size() {
    return this.#remotes.size;
  }

  /**
   * @param {number} number
   * @returns {Remote | undefined}
   */
  get(number) {
    return this.#remotes.get(number);
  }

  /**
   * Return a wire value on the GPU as a feed; null if it is not one of these tensors.
   * @param {any} value
   * @returns {import('../gpu/replay.js').Fed | null}
   */
  fed(value) {
    const remote = this.remoteOf(value);
    return remote && String(remote.dims) === String(value.dims) ? { type: remote.type, dims: remote.dims, remote } : null;
  }

  /** @param {any} value a wire value @returns {Remote | undefined} */
  remoteOf({ kind, gpu }) {
    return kind === 'gpu' ? this.get(gpu) : undefined;
  }

  /**
   * Register a tensor that Python has created, or moved to other memory; return its wire value.
   * @param {any} wire
   * @param {Spares | null} spares
   */
  receive({ gpu, memory: id, reserved, type, dims, buffer, device, counted = undefined }, spares) {
    let memory = this.#memories.get(id);
    if (!memory) {
      const rows = reserved ? { axis: reserved[0], rows: reserved[1] } : null;
      memory = { id, buffer, device, reserved: rows, tensors: new Set(), holders: [], spares: rows ? null : spares };
      this.#memories.set(id, memory);
    }
    const known = this.#byPython.get(gpu);
    if (known) {
      const before = known.memory;
      if (before !== memory) {
        before.tensors.delete(known);
        memory.tensors.add(known);
        known.memory = memory;
        this.#left(before);
      }
      known.dims = dims;
      known.counted = counted ?? undefined;
      return this.wire(known);
    }
    const remote = this.#added(type, dims, memory, gpu);
    remote.counted = counted ?? undefined;
    return this.wire(remote);
  }

  /** Return the wire value of a tensor. Pages do not get buffers with reserved rows. @param {Remote} remote @returns {any} */
  wire({ number, type, dims, memory: { buffer, reserved } }) {
    return { kind: 'gpu', type, dims, gpu: number, buffer: reserved ? undefined : buffer };
  }

  /**
   * Register a tensor that a run without Python creates.
   * @param {string} type
   * @param {number[]} dims
   * @param {Memory} memory
   */
  made(type, dims, memory) {
    return this.#added(type, dims, memory, 0);
  }

  /**
   * @param {string} type
   * @param {number[]} dims
   * @param {Memory} memory
   * @param {number} python
   */
  #added(type, dims, memory, python) {
    this.#last += 1;
    /** @type {Remote} */
    const remote = { number: this.#last, type, dims, memory, python };
    memory.tensors.add(remote);
    this.#remotes.set(remote.number, remote);
    if (python) this.#byPython.set(python, remote);
    return remote;
  }

  /** Return Python's number of a tensor; Python learns of all tensors in the same memory. @param {number} number */
  forPython(number) {
    const remote = this.#remotes.get(number);
    if (!remote) return 0;
    for (const other of remote.memory.tensors) {
      if (!other.python) {
        const one = [...remote.memory.tensors].find(({ python }) => python)?.python ?? remote.memory.holders[0];
        other.python = this.#python.share_memory(one, other.type, other.dims, other.counted);
        this.#byPython.set(other.python, other);
      }
    }
    return remote.python;
  }

  /**
   * Keep the memory of a tensor that Python has created for outputs of later runs.
   * @param {any} wire
   * @param {Spares} spares
   */
  spare(wire, spares) {
    this.dispose(this.receive(wire, spares).gpu);
  }

  /**
   * Register memory without tensors under a number that keeps it alive; `python.dispose` frees it.
   * @param {number} id
   * @param {GPUBuffer} buffer
   * @param {Memory['reserved']} reserved
   * @param {Spares | null} spares
   * @returns {Memory}
   */
  owned(id, buffer, reserved, spares) {
    /** @type {Memory} */
    const memory = { id, buffer, reserved, tensors: new Set(), holders: [id], spares: reserved ? null : spares };
    this.#memories.set(id, memory);
    return memory;
  }

  /**
   * Return memory for an output of this size; null: Python has to allocate it.
   * @param {number} nbytes
   * @param {Spares} spares
   */
  memoryFor(nbytes, spares) {
    return takeSpare(spares, nbytes);
  }

  /** Release a tensor. @param {number} number */
  dispose(number) {
    const remote = this.#remotes.get(number);
    if (!remote) return;
    this.#remotes.delete(number);
    this.#byPython.delete(remote.python);
    remote.memory.tensors.delete(remote);
    if (remote.python) remote.memory.holders.push(remote.python);
    this.#left(remote.memory);
  }

  /** Free memory without tensors, or keep it for the next run. @param {Memory} memory */
  #left(memory) {
    if (memory.tensors.size) {
      // One number keeps the memory alive: that of a tensor, or of a disposed one.
      const needed = [...memory.tensors].some(({ python }) => python) ? 0 : 1;
      for (const python of memory.holders.splice(needed)) this.#python.dispose(python);
      return;
    }
    if (memory.spares && memory.spares.length < SPARES && memory.holders.length) {
      for (const python of memory.holders.splice(1)) this.#python.dispose(python);
      memory.spares.push(memory);
      return;
    }
    this.#free(memory);
  }

  /** @param {Memory} memory */
  #free(memory) {
    this.#memories.delete(memory.id);
    for (const python of memory.holders.splice(0)) this.#python.dispose(python);
  }

  /** Free the unused memory of a session. @param {Spares} spares */
  release(spares) {
    for (const memory of spares.splice(0)) this.#free(memory);
    for (const memory of this.#memories.values()) if (memory.spares === spares) memory.spares = null;
  }
}

/**
 * Remove and return memory for an output of this size: the smallest, and of equal ones the last that was added, so that repeated runs find
 * the bind groups of earlier ones.
 * @param {Spares} spares
 * @param {number} nbytes
 * @returns {Memory | null}
 */
export function takeSpare(spares, nbytes) {
  const most = Math.max(2 * nbytes, SMALL);
  let found = -1;
  for (const [at, { buffer: { size } }] of spares.entries()) {
    if (size >= nbytes && size <= most && (found < 0 || size <= spares[found].buffer.size)) found = at;
  }
  return found < 0 ? null : spares.splice(found, 1)[0];
}

/**
 * Return feeds in the form of replays; null if one is not a tensor, or is on the GPU but not one of `tensors`.
 * @param {Record<string, any>} feeds
 * @param {Tensors | undefined} tensors
 */
export function feedsOf(feeds, tensors) {
  /** @type {Record<string, import('../gpu/replay.js').Fed>} */
  const found = {};
  for (const [name, value] of Object.entries(feeds)) {
    const fed = value && ('kind' in value ? tensors?.fed(value) : value);
    if (!fed) return null;
    found[name] = fed;
  }
  return found;
}

/**
 * Return whether rows from `first` on may be overwritten: no tensor in the memory has valid rows there.
 * @param {Remote} remote
 * @param {number} first
 */
export function isFree({ memory }, first) {
  return [...memory.tensors].every(({ counted }) => counted !== undefined && counted <= first);
}

/** Return whether rows may be appended to a tensor in its memory: no other tensor has rows there. @param {Remote} remote */
export function isLongest({ dims, memory }) {
  const { axis } = /** @type {{axis: number}} */ (memory.reserved);
  return [...memory.tensors].every((other) => other.dims[axis] <= dims[axis]);
}
