// @ts-check
import { WEB } from '../../../addresses.js';
import { byId, h } from '../../dom.js';
import { explain } from '../errors.js';
import { formatTime, median } from '../format.js';
import { Comparison } from './comparison.js';
import { Enlarger, SCALE } from './enlarger.js';
import { LONGEST, Source } from './source.js';

/** Size in pixels of the piece that is enlarged at a time, for a GPU and for a CPU. */
const FRAME = { width: 192, height: 144 };
const SMALL_FRAME = { width: 96, height: 72 };
const CAMERA_LONGEST = 640;
const TIMES_KEPT = 15;
/** Milliseconds for which the last result may be shown next to a newer picture. */
const PATIENCE_MS = 400;

const SAMPLES = [{ name: 'chelsea', label: 'Cat' }, { name: 'astronaut', label: 'Astronaut' }];

/** Demo: the visitor's picture or camera, enlarged by the model next to the browser's enlargement. */
export class PictureDemo {
  /** @param {Promise<boolean>} isSoftware whether the adapter is a software adapter */
  constructor(isSoftware) {
    this.comparison = new Comparison();
    this.notice = byId('picture-error');
    this.facts = byId('picture-facts');
    this.times = /** @type {number[]} */ ([]);
    this.busy = false;
    this.stale = false;
    this.turn = 0;
    /** @type {Enlarger | null} */
    this.enlarger = null;
    /** @type {MediaStream | null} */
    this.stream = null;
    this.video = document.createElement('video');
    Object.assign(this.video, { muted: true, playsInline: true });
    this.source = isSoftware.then((software) => this.#makeSource(software ? SMALL_FRAME : FRAME));
    this.#listen();
    this.#startWhenSeen();
  }

  /** @param {{width: number, height: number}} frame */
  #makeSource(frame) {
    const source = new Source(frame);
    source.addEventListener('change', () => this.#follow(source));
    return source;
  }

  /** Open a picture of the visitor; of several requests, the last one is shown. @param {Blob | Promise<Blob>} file @param {string} name */
  async open(file, name) {
    const turn = ++this.turn;
    this.#stopCamera();
    this.notice.replaceChildren();
    try {
      const bitmap = await createImageBitmap(await file);
      const source = await this.source;
      if (turn !== this.turn) return;
      this.times = [];
      source.show(bitmap, bitmap.width, bitmap.height);
      const reduced = Math.max(bitmap.width, bitmap.height) > LONGEST ? `, reduced from ${bitmap.width} × ${bitmap.height}` : '';
      const { width, height } = source.picture.canvas;
      byId('picture-name').textContent = `${name}, ${width} × ${height}${reduced}`;
      bitmap.close();
    } catch (error) {
      this.#fail(error, { title: 'This picture cannot be read.', next: 'Choose a PNG, JPEG, WebP or GIF picture.' });
    }
  }

  #listen() {
    const input = /** @type {HTMLInputElement} */ (byId('picture-file'));
    input.addEventListener('change', () => {
      const [file] = input.files ?? [];
      if (file) this.open(file, file.name);
      input.value = '';
    });
    document.addEventListener('paste', (event) => {
      const file = [...event.clipboardData?.files ?? []].find(({ type }) => type.startsWith('image/'));
      if (!file) return;
      event.preventDefault();
      byId('picture').scrollIntoView({ block: 'start' });
      this.open(file, 'Pasted picture');
    });
    for (const { name, label } of SAMPLES) {
      const url = new URL(`ui/app/picture/samples/${name}.png`, WEB);
      byId('picture-samples').append(h('button', { type: 'button', class: 'quiet', on: { click: () => this.#openSample(url, label) } }, label));
    }
    byId('camera').addEventListener('click', () => (this.stream ? this.#stopCamera() : this.#startCamera()));
    byId('enlarge-all').addEventListener('click', () => this.#enlargeAll());
    byId('enlarge-cancel').addEventListener('click', () => this.cancelling?.abort());
  }

  /** Open the first sample when the section becomes visible. */
  #startWhenSeen() {
    const observer = new IntersectionObserver(async (seen) => {
      if (!seen.some(({ isIntersecting }) => isIntersecting)) return;
      observer.disconnect();
      await this.source;
      if (!this.turn && !this.stream) this.#openSample(new URL(`ui/app/picture/samples/${SAMPLES[0].name}.png`, WEB), SAMPLES[0].label);
    });
    observer.observe(byId('stage'));
  }

  /** @param {URL} url @param {string} label */
  #openSample(url, label) {
    return this.open(fetch(url).then((response) => response.blob()), label);
  }

  /** Enlarge the current picture, and again if it has changed meanwhile; pictures in between are skipped. @param {Source} source */
  async #follow(source) {
    this.stale = true;
    if (this.busy) return;
    this.busy = true;
    try {
      if (!this.enlarger) this.facts.textContent = 'Loading the picture model';
      this.enlarger ??= await Enlarger.load();
      /** @type {HTMLButtonElement} */ (byId('enlarge-all')).disabled = false;
      while (this.stale) {
        this.stale = false;
        const pixels = source.pixels();
        const begin = performance.now();
        const working = window.setTimeout(() => this.comparison.showWorking(pixels), PATIENCE_MS);
        const enlarged = await this.enlarger.enlarge(pixels).finally(() => window.clearTimeout(working));
        this.#time(performance.now() - begin, pixels);
        this.comparison.showBefore(pixels);
        this.comparison.showAfter(enlarged);
        if (this.stream) await this.#nextFrame(source);
      }
    } catch (error) {
      this.#stopCamera();
      this.#fail(error);
    } finally {
      this.busy = false;
    }
  }

  /** @param {number} ms @param {ImageData} pixels */
  #time(ms, { width, height }) {
    this.times.push(ms);
    if (this.times.length > TIMES_KEPT) this.times.shift();
    const typical = median(this.times);
    const rate = this.times.length > 2 ? `, ${(1000 / typical).toPrecision(2)} a second` : '';
    this.facts.textContent = `${width} × ${height} to ${width * SCALE} × ${height * SCALE} in ${formatTime(typical)}${rate}`;
  }

  async #startCamera() {
    this.turn += 1;
    this.notice.replaceChildren();
    const button = byId('camera');
    try {
      if (!navigator.mediaDevices) throw new Error('The browser gives cameras to secure pages only: https or localhost.');
      this.stream = await navigator.mediaDevices.getUserMedia({ video: { width: { ideal: 640 }, facingMode: 'environment' } });
      button.textContent = 'Stop the camera';
      button.setAttribute('aria-pressed', 'true');
      this.video.srcObject = this.stream;
      await this.video.play();
      this.times = [];
      byId('picture-name').textContent = 'Camera; its pictures stay in this tab';
      this.#showFrame(await this.source);
    } catch (error) {
      this.#stopCamera();
      this.#fail(error, { title: 'There is no camera to use.', next: 'Allow the camera in the address bar, or choose a picture.' });
    }
  }

  #stopCamera() {
    for (const track of this.stream?.getTracks() ?? []) track.stop();
    this.stream = null;
    this.video.srcObject = null;
    const button = byId('camera');
    button.textContent = 'Camera';
    button.setAttribute('aria-pressed', 'false');
  }

  /** @param {Source} source */
  #showFrame(source) {
    const { videoWidth, videoHeight } = this.video;
    if (videoWidth) source.show(this.video, videoWidth, videoHeight, CAMERA_LONGEST);
  }

  /** Wait until the page is painted, then take the camera's current picture. @param {Source} source */
  async #nextFrame(source) {
    await new Promise((resolve) => { requestAnimationFrame(resolve); });
    if (this.stream) this.#showFrame(source);
  }

  async #enlargeAll() {
    const source = await this.source;
    if (source.isEmpty || !this.enlarger) return;
    this.#stopCamera();
    this.cancelling = new AbortController();
    const progress = byId('enlarge-progress');
    const [all, cancel] = [byId('enlarge-all'), byId('enlarge-cancel')];
    all.hidden = true;
    cancel.hidden = false;
    byId('enlarge-result').replaceChildren();
    try {
      const canvas = await this.enlarger.enlargeAll(source.picture, {
        signal: this.cancelling.signal,
        onProgress: (done, total) => { progress.textContent = `Tile ${Math.min(done + 1, total)} of ${total}`; },
      });
      const blob = await new Promise((resolve) => { canvas.toBlob(resolve, 'image/png'); });
      const link = h('a', { class: 'button quiet', download: 'enlarged.png', href: URL.createObjectURL(/** @type {Blob} */ (blob)) },
        `Save ${canvas.width} × ${canvas.height} PNG`);
      byId('enlarge-result').replaceChildren(link);
      progress.textContent = '';
    } catch (error) {
      progress.textContent = this.cancelling.signal.aborted ? 'Cancelled.' : '';
      if (!this.cancelling.signal.aborted) this.#fail(error);
    } finally {
      all.hidden = false;
      cancel.hidden = true;
    }
  }

  /** @param {unknown} error @param {{title?: string, next?: string}} [context] */
  #fail(error, context) {
    this.facts.textContent = '';
    this.notice.replaceChildren(explain(error, context));
  }
}
