// @ts-check
/**
 * A plan's constants on the GPU: those that the model's files have, and those that are computed from them. A constant that only
 * others are computed from is allocated when its bytes arrive, and freed when it has been used. Commands that make different parts
 * of a computed constant from constants alone run when these have arrived.
 */

/** @typedef {import('./plan.js').SavedPlan} SavedPlan */

/**
 * Bytes that are freed when constants have been computed, at a time: a sixteenth of those that stay, within bounds. Each time waits
 * for the device. Python takes as many (`pyruntime/session/run/prologue.py`).
 */
const [LEAST_TOGETHER, MOST_TOGETHER, SHARE] = [4 << 20, 128 << 20, 16];

/**
 * @typedef {object} Memory
 * @property {(sizes: number[], label: string) => Promise<GPUBuffer[]>} allocate
 * @property {(buffer: GPUBuffer) => void} free
 * @property {(plans: SavedPlan[], results: GPUBuffer[]) => Promise<void>} compute makes the constant of each plan, or a part
 *
 * @typedef {{plan: SavedPlan, result: number}} Part a plan that makes the computed constant `result`, or a part of it
 */

/** Whether each command of a plan makes another part of its constant, from constants alone. @param {SavedPlan} plan */
function isApart({ arenas, commands, repeated }) {
  if (arenas.length || repeated.length) return false;
  const made = commands.map(({ regions }) => regions.filter(([space]) => space === 2));
  const places = made.flat().sort(([, , one], [, , other]) => one - other);
  return made.every(({ length }) => length === 1) && places.every(([, , offset], i) => !i || offset >= places[i - 1][2] + places[i - 1][3]);
}

/** The parts of a plan. @param {SavedPlan} plan @returns {SavedPlan[]} */
function partsOf(plan) {
  const { commands, constants } = plan;
  if (!isApart(plan)) return [plan];
  return commands.map((command) => {
    const read = command.regions.filter(([space]) => space === 1).map(([, index]) => index);
    const regions = command.regions.map(([space, index, ...place]) => [space, space === 1 ? read.indexOf(index) : index, ...place]);
    return { ...plan, commands: [/** @type {any} */ ({ ...command, regions })], constants: read.map((index) => constants[index]) };
  });
}

export class Constants {
  /** @type {Part[]} */
  #parts;
  #results;
  #sizes;
  #places;
  #memory;
  /** Temporary bytes that are worth a wait for the device. */
  #most;
  /** Bytes of those that stay. */
  nbytes;
  /** By number; those that do not stay are there while they are used. @type {(GPUBuffer | undefined)[]} */
  buffers = [];
  /** Computed constants, by number. @type {GPUBuffer[]} */
  computed = [];
  /** Of each buffer: constants that have not arrived. @type {number[]} */
  #missing = [];
  /** Of each part: buffers that are not complete. @type {number[]} */
  #waits = [];
  /** Of each buffer: parts that have not read it. @type {Set<number>[]} */
  #readers = [];
  /** Parts whose constants have arrived. @type {number[]} */
  #ready = [];

  /** @param {import('./plan.js').Saved} header @param {Memory} memory */
  constructor({ computed, buffers, constants }, memory) {
    this.#parts = computed.flatMap((whole, result) => partsOf(whole).map((plan) => ({ plan, result })));
    this.#results = computed.map(({ external }) => external[0].region[3]);
    this.#sizes = buffers;
    this.#places = constants;
    this.#memory = memory;
    const stay = [...buffers.map(([nbytes, stays]) => nbytes * stays), ...this.#results];
    this.nbytes = stay.reduce((sum, nbytes) => sum + nbytes, 0);
    this.#most = Math.min(Math.max(LEAST_TOGETHER, this.nbytes / SHARE), MOST_TOGETHER);
  }

  /** Nothing has arrived; what stays has its memory. */
  async begin() {
    for (const buffer of [...this.buffers, ...this.computed]) if (buffer) this.#memory.free(buffer);
    this.computed = [];
    this.#missing = this.#sizes.map(() => 0);
    for (const [, , nbytes, buffer] of this.#places) this.#missing[buffer] += nbytes ? 1 : 0;
    this.#readers = this.#sizes.map(() => new Set());
    this.#waits = this.#parts.map(({ plan }, number) => {
      const read = this.#readBy(plan);
      for (const buffer of read) this.#readers[buffer].add(number);
      return read.filter((buffer) => this.#missing[buffer]).length;
    });
    this.#ready = [...this.#parts.keys()].filter((number) => !this.#waits[number]);
    const now = [...this.#sizes.keys()].filter((buffer) => this.#sizes[buffer][1] || !this.#missing[buffer]);
    const made = await this.#memory.allocate(now.map((buffer) => this.#sizes[buffer][0]), 'weights');
    this.buffers = [];
    for (const [i, buffer] of now.entries()) this.buffers[buffer] = made[i];
  }

  /** The buffer of this number, for what arrives. @param {number} number */
  async bufferFor(number) {
    const found = this.buffers[number] ?? (await this.#memory.allocate([this.#sizes[number][0]], 'weights'))[0];
    this.buffers[number] = found;
    return found;
  }

  /** One of the constants in a buffer has arrived. @param {number} buffer */
  async arrived(buffer) {
    this.#missing[buffer] -= 1;
    if (this.#missing[buffer]) return;
    for (const number of this.#readers[buffer]) {
      this.#waits[number] -= 1;
      if (!this.#waits[number]) this.#ready.push(number);
    }
    while (this.#ready.reduce((sum, number) => sum + this.#temporary(number), 0) >= this.#most) await this.#compute();
  }

  /** Compute what has not been computed, when all has arrived. */
  async end() {
    while (this.#ready.length) await this.#compute();
  }

  /** Buffers that a plan reads, each once. @param {SavedPlan} plan */
  #readBy({ constants }) {
    return [...new Set(constants.map(([constant]) => this.#places[constant][3]))];
  }

  /**
   * Return the bytes that can be freed after a part has run: its activations, and constants that only such parts read.
   * @param {number} number
   */
  #temporary(number) {
    const { plan } = this.#parts[number];
    const read = plan.constants.map(([constant]) => this.#places[constant]).filter(([, , , buffer]) => !this.#sizes[buffer][1]);
    return [...plan.arenas, ...read.map(([, , nbytes]) => nbytes)].reduce((sum, nbytes) => sum + nbytes, 0);
  }

  /** Compute some that are ready, of as many temporary bytes as are worth a wait, or one. */
  async #compute() {
    let [count, left] = [0, this.#most];
    while (count < this.#ready.length && (!count || this.#temporary(this.#ready[count]) <= left)) {
      left -= this.#temporary(this.#ready[count]);
      count += 1;
    }
    const numbers = this.#ready.splice(0, count);
    const parts = numbers.map((number) => this.#parts[number]);
    const missing = [...new Set(parts.map(({ result }) => result))].filter((result) => !this.computed[result]);
    const made = await this.#memory.allocate(missing.map((result) => this.#results[result]), 'computed');
    for (const [i, result] of missing.entries()) this.computed[result] = made[i];
    await this.#memory.compute(parts.map(({ plan }) => plan), parts.map(({ result }) => this.computed[result]));
    for (const number of numbers) for (const buffer of this.#readBy(this.#parts[number].plan)) this.#used(buffer, number);
  }

  /** @param {number} buffer @param {number} part */
  #used(buffer, part) {
    const [readers, held] = [this.#readers[buffer], this.buffers[buffer]];
    readers.delete(part);
    if (readers.size || this.#sizes[buffer][1] || !held) return;
    this.#memory.free(held);
    delete this.buffers[buffer];
  }
}
