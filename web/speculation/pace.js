// @ts-check
/** Decide how many runs to start speculatively, from the success of earlier predictions and the duration of a run. */

/** Minimum and maximum number of consecutive predictable runs that are required first. */
const FEWEST = 2;
const MOST_FEWEST = 64;

/** Maximum number of queued runs; the depth grows by one with each correct prediction. */
export const DEPTH = 6;

/** Approximate milliseconds of all queued runs, the cost of a wrong prediction. */
const QUEUED_MS = 24;

/** Maximum duration of a run, in milliseconds, to speculate on: waiting for the caller matters little for longer ones. */
const LONGEST_RUN = 40;

/** The pace of one session. */
export class Pace {
  /** Consecutive predictable runs. */
  #streak = 0;
  #fewest = FEWEST;
  /** Average milliseconds of a run; of queued runs, between their arrivals. */
  #ms = 0;
  #arrived = 0;
  /** Maximum number of queued runs for now. */
  depth = 1;

  /** Whether the last run was predictable. */
  get isFollowing() {
    return this.#streak > 0;
  }

  /** Whether to queue runs. */
  get isSteady() {
    return this.#streak >= this.#fewest && this.#ms <= LONGEST_RUN;
  }

  /** Record a request that no queued run answers. @param {boolean} follows whether the run was predictable from the one before */
  asked(follows) {
    this.#streak = follows ? this.#streak + 1 : 0;
  }

  /** Record a request that a queued run answers. */
  hit() {
    this.depth = Math.min(this.depth + 1, DEPTH, Math.ceil(QUEUED_MS / this.#ms));
    this.#fewest = Math.max(FEWEST, this.#fewest / 2);
  }

  /** Record a wrong prediction: a longer streak is required from now on. */
  missed() {
    this.#fewest = Math.min(2 * this.#fewest, MOST_FEWEST);
    this.#streak = 0;
    this.depth = 1;
  }

  /** @param {number} ms duration of a run alone */
  ran(ms) {
    this.#ms = ms;
  }

  /** Record that a run which was queued at `began` has finished. @param {number} began */
  arrived(began) {
    const now = performance.now();
    this.#ms += (now - Math.max(began, this.#arrived) - this.#ms) / 4;
    this.#arrived = now;
  }
}
