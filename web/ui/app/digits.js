// @ts-check
import { SITE } from '../../addresses.js';
import { Pad } from '../draw/pad.js';
import { SIZE, rasterize } from '../draw/raster.js';
import { InferenceSession, Tensor } from '../../pyruntime.js';
import { byId, h } from '../dom.js';
import { median } from './format.js';
import { isKeeping } from './model/store.js';
import { Prediction } from './prediction.js';
import { makeSampleButtons, paint } from './samples.js';

/** @typedef {import('../draw/raster.js').Point} Point */

const MODELS = new URL('models/', SITE);
const TIMES_KEPT = 31;

/** The demo's model. */
const DIGITS_MODEL = new URL('digits.onnx', MODELS);

/** A 3 to draw on the pad when everything is ready and the visitor has not drawn yet. @type {Point[][]} */
const WRITTEN = [[...Array(48).keys()].map((i) => {
  const t = i / 47;
  const upper = t < 0.5;
  const angle = (upper ? -2.5 + (2.5 + 1.45) * 2 * t : -1.35 + (1.35 + 2.35) * (2 * t - 1));
  return upper ? [0.49 + 0.16 * Math.cos(angle), 0.33 + 0.14 * Math.sin(angle)]
    : [0.48 + 0.2 * Math.cos(angle), 0.64 + 0.175 * Math.sin(angle)];
})];

/** The digits demo: a drawing pad and ten bars that follow it. */
export class Digits {
  /** @param {{onTime: (medianMs: number) => void, onError: (error: unknown) => void}} listeners */
  constructor({ onTime, onError }) {
    this.onTime = onTime;
    this.onError = onError;
    this.pad = new Pad(/** @type {HTMLCanvasElement} */ (byId('pad')));
    this.prediction = new Prediction();
    this.caption = byId('pad-caption');
    /** @type {InferenceSession | null} */
    this.session = null;
    this.isAnswered = () => {};
    /** Fulfilled when the first prediction is shown, or none will be. @type {Promise<void>} */
    this.answered = new Promise((resolve) => { this.isAnswered = resolve; });
    /** The test image on the pad, if it shows one. @type {Float32Array | null} */
    this.sample = null;
    /** @type {number[]} */
    this.times = [];
    this.touched = false;
    this.busy = false;
    this.stale = false;
    this.pad.addEventListener('begin', () => this.#drawing());
    this.pad.addEventListener('change', () => this.#changed());
    byId('pad-clear').addEventListener('click', () => this.clear());
    document.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && !this.pad.isEmpty) this.clear();
    });
    this.answered.then(() => this.#addSamples()); // not needed for the first prediction
  }

  /**
   * Start to predict with a session; an earlier drawing is predicted at once.
   * @param {InferenceSession} session a session after its first run
   */
  start(session) {
    this.session = session;
    if (this.touched) this.#changed();
    else this.pad.write(WRITTEN);
  }

  clear() {
    this.touched = true;
    this.sample = null;
    this.#say('');
    this.pad.clear();
  }

  /** Return the current model input: a test image, or the strokes. */
  #image() {
    return this.sample ?? rasterize(this.pad.strokes);
  }

  #drawing() {
    this.touched = true;
    this.sample = null;
    this.#say('');
  }

  #changed() {
    byId('pad-hint').hidden = !this.pad.isEmpty;
    /** @type {HTMLButtonElement} */ (byId('pad-clear')).disabled = this.pad.isEmpty;
    this.stale = true;
    if (!this.busy) this.#follow();
  }

  /** Run the model on the current drawing, and again if it has changed meanwhile; drawings in between are skipped. */
  async #follow() {
    this.busy = true;
    byId('bars').ariaBusy = 'true';
    try {
      while (this.stale && this.session) {
        this.stale = false;
        if (this.pad.isEmpty) {
          this.prediction.clear();
          continue;
        }
        const image = this.#image();
        const begin = performance.now();
        const { probabilities } = await predict(this.session, image);
        this.#time(performance.now() - begin);
        if (!this.pad.isEmpty) this.prediction.show(image, probabilities);
        this.isAnswered();
      }
      if (this.pad.isEmpty) this.prediction.clear();
      if (this.session && this.touched) this.isAnswered();
    } catch (error) {
      this.session = null;
      this.onError(error);
      this.isAnswered();
    } finally {
      this.busy = false;
      byId('bars').ariaBusy = 'false';
    }
  }

  /** @param {number} ms */
  #time(ms) {
    this.times.push(ms);
    if (this.times.length > TIMES_KEPT) this.times.shift();
    this.onTime(median(this.times));
  }

  async #addSamples() {
    try {
      await makeSampleButtons(MODELS, ({ index, label, image }, count) => {
        this.touched = true;
        this.sample = image;
        const picture = h('canvas');
        paint(picture, image);
        this.pad.show(picture);
        this.#say(`Test image ${index + 1} of ${count}, labelled ${label}; the model was not trained on it.`);
      });
    } catch {
      byId('samples').hidden = true;
      this.#say('Draw with mouse, finger or pen.');
    }
  }

  /** @param {string} text '' for the default text */
  #say(text) {
    this.caption.textContent = text || 'Draw with mouse, finger or pen, or take a test image:';
  }
}

/**
 * @param {InferenceSession} session
 * @param {Float32Array} image
 * @returns {Promise<{probabilities: Float32Array}>}
 */
async function predict(session, image) {
  const outputs = await session.run({ image: new Tensor('float32', image, [1, 1, SIZE, SIZE]) });
  return { probabilities: /** @type {Float32Array} */ (outputs.probabilities.data) };
}

/** Load the digits model and run it once, so that its shaders are compiled.
 *
 * @param {(event: import('../../pyruntime.js').ProgressEvent) => void} onProgress
 */
export async function loadDigits(onProgress) {
  const session = await InferenceSession.create(DIGITS_MODEL, { onProgress, plan: new URL('digits.plan', MODELS), cachePlan: isKeeping() });
  onProgress({ phase: 'run', status: 'begin' });
  const begin = performance.now();
  await predict(session, new Float32Array(SIZE * SIZE));
  onProgress({ phase: 'run', status: 'end', ms: performance.now() - begin });
  return session;
}
