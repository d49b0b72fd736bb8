// @ts-check
/**
 * Decide how many runs begin before they are requested, by the success of earlier predictions and by the duration of a run.
 */

/** Least and greatest number of consecutive predictable runs that are required first. */
const FEWEST = 2;
const MOST_FEWEST = 64;

/** Greatest number of queued runs; the depth grows by one with each correct prediction. */
export const DEPTH = 6;

/** Approximate milliseconds of all queued runs, the cost of a wrong prediction. */
const QUEUED_MS = 24;

/** Milliseconds of the longest run to speculate on: for longer ones, waiting for the caller matters little. */
const LONGEST_RUN = 40;

/** The pace of one session. */
export class Pace {
  /** Consecutive predictable runs. */
  #streak = 0;
  #fewest = FEWEST;
  /** Average milliseconds of a run; of queued runs, between their arrivals. */
  #ms = 0;
  #arrived = 0;
  /** How many runs may be queued. */
  depth = 1;

  /** Whether the last run was predictable. */
  get isFollowing() {
    return this.#streak > 0;
  }

  /** Whether to queue runs. */
  get isSteady() {
    return this.#streak >= this.#fewest && this.#ms <= LONGEST_RUN;
  }

  /** Note a request that no queued run answers. @param {boolean} follows whether the run was predictable from the one before */
  asked(follows) {
    this.#streak = follows ? this.#streak + 1 : 0;
  }

  /** Note a request that a queued run answers. */
  hit() {
    this.depth = Math.min(this.depth + 1, DEPTH, Math.ceil(QUEUED_MS / this.#ms));
    this.#fewest = Math.max(FEWEST, this.#fewest / 2);
  }

  /** Note a wrong prediction: from now on a longer streak is required. */
  missed() {
    this.#fewest = Math.min(2 * this.#fewest, MOST_FEWEST);
    this.#streak = 0;
    this.depth = 1;
  }

  /** @param {number} ms that a run took by itself */
  ran(ms) {
    this.#ms = ms;
  }

  /** Note that a run which was queued at `began` has arrived. @param {number} began */
  arrived(began) {
    const now = performance.now();
    this.#ms += (now - Math.max(began, this.#arrived) - this.#ms) / 4;
    this.#arrived = now;
  }
}
