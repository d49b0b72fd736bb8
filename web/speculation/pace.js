// @ts-check
/** How many runs are begun before they are asked for: by how many of those before were, and by how long they take. */

/** Runs that must have followed from one another. */
const FEWEST = 2;
const MOST_FEWEST = 64;

/** Runs begun ahead at most; one more with each that was asked for. */
export const DEPTH = 6;

/** Milliseconds that runs begun ahead may take, about: what a wrong guess costs. */
const AHEAD_MS = 24;

/** Milliseconds: where a run takes longer, waiting for the caller is little of it. */
const LONGEST_RUN = 40;

/** Of one session. */
export class Pace {
  /** Runs that followed from one another. */
  #streak = 0;
  #fewest = FEWEST;
  /** Milliseconds that a run takes, about: where runs follow each other, between their arrivals. */
  #ms = 0;
  #arrived = 0;
  /** How many may be begun. */
  depth = 1;

  /** Whether the last run followed from the one before. */
  get isFollowing() {
    return this.#streak > 0;
  }

  /** Whether it is worth beginning any. */
  get isSteady() {
    return this.#streak >= this.#fewest && this.#ms <= LONGEST_RUN;
  }

  /** A run was asked for that had not been begun. @param {boolean} follows from the one before */
  asked(follows) {
    this.#streak = follows ? this.#streak + 1 : 0;
  }

  /** A run was asked for that had been begun. */
  hit() {
    this.depth = Math.min(this.depth + 1, DEPTH, Math.ceil(AHEAD_MS / this.#ms));
    this.#fewest = Math.max(FEWEST, this.#fewest / 2);
  }

  /** Another one was asked for than had been begun: next time it takes more. */
  missed() {
    this.#fewest = Math.min(2 * this.#fewest, MOST_FEWEST);
    this.#streak = 0;
    this.depth = 1;
  }

  /** @param {number} ms that a run took by itself */
  ran(ms) {
    this.#ms = ms;
  }

  /** A run that was begun at `began`, behind another, has arrived just now. @param {number} began */
  arrived(began) {
    const now = performance.now();
    this.#ms += (now - Math.max(began, this.#arrived) - this.#ms) / 4;
    this.#arrived = now;
  }
}
