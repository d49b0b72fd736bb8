// @ts-check
/**
 * A plan's constants on the GPU: those that the model's files have, and those that are computed from them. A constant that only
 * others are computed from is allocated when its bytes arrive, and freed when it has been used.
 */

/** @typedef {import('./plan.js').SavedPlan} SavedPlan */

/**
 * Bytes that are freed when constants have been computed, at a time: a sixteenth of those that stay, within bounds. Each time waits
 * for the device. Python takes as many (`pyruntime/session/run/prologue.py`).
 */
const [LEAST_TOGETHER, MOST_TOGETHER, SHARE] = [4 << 20, 128 << 20, 16];

/**
 * @typedef {object} Memory
 * @property {(sizes: number[]) => Promise<GPUBuffer[]>} allocate
 * @property {(buffer: GPUBuffer) => void} free
 * @property {(plans: SavedPlan[]) => Promise<GPUBuffer[]>} compute makes the constant of each plan
 */

export class Constants {
  #plans;
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
  /** Of each plan: buffers that are not complete. @type {number[]} */
  #waits = [];
  /** Of each buffer: plans that have not read it. @type {Set<number>[]} */
  #readers = [];
  /** Plans whose constants have arrived. @type {number[]} */
  #ready = [];

  /** @param {import('./plan.js').Saved} header @param {Memory} memory */
  constructor({ computed, buffers, constants }, memory) {
    this.#plans = computed;
    this.#sizes = buffers;
    this.#places = constants;
    this.#memory = memory;
    const stay = [...buffers.map(([nbytes, stays]) => nbytes * stays), ...computed.map(({ external }) => external[0].region[3])];
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
    this.#waits = this.#plans.map((plan, number) => {
      const read = this.#readBy(plan);
      for (const buffer of read) this.#readers[buffer].add(number);
      return read.filter((buffer) => this.#missing[buffer]).length;
    });
    this.#ready = [...this.#plans.keys()].filter((number) => !this.#waits[number]);
    const now = [...this.#sizes.keys()].filter((buffer) => this.#sizes[buffer][1] || !this.#missing[buffer]);
    const made = await this.#memory.allocate(now.map((buffer) => this.#sizes[buffer][0]));
    this.buffers = [];
    for (const [i, buffer] of now.entries()) this.buffers[buffer] = made[i];
  }

  /** The buffer of this number, for what arrives. @param {number} number */
  async bufferFor(number) {
    const found = this.buffers[number] ?? (await this.#memory.allocate([this.#sizes[number][0]]))[0];
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

  /** Bytes that leave when a plan has run: its activations, and its share of what is there for plans alone. @param {number} number */
  #temporary(number) {
    const plan = this.#plans[number];
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
    const made = await this.#memory.compute(numbers.map((number) => this.#plans[number]));
    for (const [i, number] of numbers.entries()) {
      this.computed[number] = made[i];
      for (const buffer of this.#readBy(this.#plans[number])) this.#used(buffer, number);
    }
  }

  /** @param {number} buffer @param {number} plan */
  #used(buffer, plan) {
    const [readers, held] = [this.#readers[buffer], this.buffers[buffer]];
    readers.delete(plan);
    if (readers.size || this.#sizes[buffer][1] || !held) return;
    this.#memory.free(held);
    delete this.buffers[buffer];
  }
}
