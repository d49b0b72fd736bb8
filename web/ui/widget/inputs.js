// @ts-check
/** Input methods of the widget: each creates its controls and calls `give` with the model's inputs. */

import { Pad } from '../draw/pad.js';
import { h } from '../dom.js';
import { drawingTensor, numbersTensor, pictureTensor, template } from './tensors.js';

/**
 * @typedef {import('../../pyruntime.js').ValueMetadata} ValueMetadata
 * @typedef {import('../../pyruntime.js').Feeds} Feeds
 *
 * @typedef {object} Context
 * @property {readonly ValueMetadata[]} inputs inputs of the model
 * @property {import('./tensors.js').Scale} scale
 * @property {(feeds: Feeds, final?: boolean) => void} give run the model; `final`: the input is complete
 * @property {() => void} clear remove the current inputs
 * @property {(error: unknown) => void} fail
 */

/** Distance that an arrow key moves the pen, as a fraction of the side. */
const STEP = 0.04;

/** @type {Record<string, [number, number]>} */
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** Return the only input of a model; throws if it has several. @param {readonly ValueMetadata[]} inputs @param {string} way */
function only(inputs, way) {
  if (inputs.length !== 1) {
    throw new TypeError(`input="${way}" is for models of one input; this one has ${inputs.length}: use input="json"`);
  }
  return inputs[0];
}

/** A square to draw on: mouse, finger, pen, or arrow keys with the space bar. @param {Context} context */
function draw({ inputs, scale, give, clear }) {
  const input = only(inputs, 'draw');
  const canvas = h('canvas', {
    tabindex: '0', role: 'application', 'aria-roledescription': 'drawing area',
    'aria-label': 'Drawing area. Arrow keys move the pen, the space bar lowers and lifts it, Delete clears.',
  });
  const hint = h('span', { class: 'hint', 'aria-hidden': 'true' }, 'Draw here');
  const pen = h('span', { class: 'pen', hidden: true });
  const button = h('button', { class: 'quiet', type: 'button', part: 'clear', disabled: true }, 'Clear');
  const square = h('div', { class: 'pad', part: 'pad' }, canvas, hint, pen);
  const pad = new Pad(canvas);
  const changed = (final = false) => {
    hint.hidden = !pad.isEmpty;
    button.disabled = pad.isEmpty;
    if (pad.isEmpty) clear();
    else give({ [input.name]: drawingTensor(input, pad.strokes, scale) }, final);
  };
  pad.addEventListener('change', () => changed());
  pad.addEventListener('strokeend', () => changed(true));
  button.addEventListener('click', () => {
    pad.clear();
    canvas.focus();
  });
  penKeys(pad, canvas, pen, square);
  return [square, h('div', { class: 'row' }, h('span', { class: 'soft' }, 'Mouse, finger, pen, or arrow keys and space'), button)];
}

/**
 * Draw with the keyboard.
 * @param {Pad} pad
 * @param {HTMLCanvasElement} canvas
 * @param {HTMLElement} pen element that shows the pen's position
 * @param {HTMLElement} square
 */
function penKeys(pad, canvas, pen, square) {
  let place = /** @type {[number, number]} */ ([0.5, 0.25]);
  let down = false;
  const show = () => {
    square.style.setProperty('--x', String(place[0]));
    square.style.setProperty('--y', String(place[1]));
    pen.classList.toggle('down', down);
  };
  const lift = () => {
    if (down) pad.dispatchEvent(new Event('strokeend'));
    down = false;
    show();
  };
  canvas.addEventListener('blur', () => {
    lift();
    pen.hidden = true;
  });
  canvas.addEventListener('pointerdown', () => {
    pen.hidden = true;
  });
  canvas.addEventListener('keydown', (event) => {
    const arrow = ARROWS[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (arrow) {
      const inside = (/** @type {number} */ part) => Math.min(0.98, Math.max(0.02, part));
      place = [inside(place[0] + STEP * arrow[0]), inside(place[1] + STEP * arrow[1])];
      if (down) {
        pad.strokes[pad.strokes.length - 1].push(place);
        pad.redraw();
        pad.dispatchEvent(new Event('change'));
      }
    } else if (event.key === ' ') {
      if (down) {
        lift();
      } else {
        down = true;
        pad.isDrawn = true;
        pad.strokes.push([place]);
        pad.redraw();
        pad.dispatchEvent(new Event('change'));
      }
    } else if (['Delete', 'Backspace', 'Escape'].includes(event.key)) {
      down = false;
      pad.clear();
    } else {
      return;
    }
    pen.hidden = false;
    show();
    event.preventDefault();
  });
}

/** A picture that is chosen, dropped or pasted. @param {Context} context */
function image({ inputs, scale, give, fail }) {
  const input = only(inputs, 'image');
  const file = h('input', { type: 'file', accept: 'image/*', class: 'hidden', id: 'file' });
  const label = h('label', { part: 'choose', for: 'file' }, 'Choose a picture');
  const preview = h('div');
  const drop = h('div', { class: 'drop', part: 'drop' }, preview,
    h('span', { class: 'chooser' }, file, label), h('span', { class: 'soft' }, 'or drop or paste one here'));
  const take = async (/** @type {Blob | undefined} */ blob) => {
    if (!blob) return;
    try {
      const bitmap = await createImageBitmap(blob).catch(() => {
        throw new TypeError('this file is no picture that the browser can read');
      });
      const { tensor, canvas } = await pictureTensor(input, bitmap, scale);
      canvas.setAttribute('role', 'img');
      canvas.classList.toggle('small', canvas.width < 96);
      canvas.setAttribute('aria-label', 'What the model sees');
      preview.replaceChildren(canvas);
      label.textContent = 'Choose another';
      give({ [input.name]: tensor }, true);
    } catch (error) {
      fail(error);
    }
  };
  file.addEventListener('change', () => {
    take(file.files?.[0]);
    file.value = '';
  });
  for (const type of ['dragenter', 'dragover']) {
    drop.addEventListener(type, (event) => {
      event.preventDefault();
      drop.classList.add('over');
    });
  }
  drop.addEventListener('dragleave', () => drop.classList.remove('over'));
  drop.addEventListener('drop', (event) => {
    event.preventDefault();
    drop.classList.remove('over');
    take([...(event.dataTransfer?.files ?? [])].find(({ type }) => type.startsWith('image/')));
  });
  drop.addEventListener('paste', (event) => {
    take([...(event.clipboardData?.files ?? [])].find(({ type }) => type.startsWith('image/')));
  });
  return [drop];
}

/** Inputs as JSON. @param {Context} context */
function json({ inputs, give, fail }) {
  const area = h('textarea', { id: 'json', spellcheck: 'false', part: 'json', autocomplete: 'off' });
  area.value = template(inputs);
  const button = h('button', { type: 'button', part: 'run' }, 'Run');
  const run = () => {
    try {
      const value = JSON.parse(area.value);
      const single = inputs.length === 1 && !(value && typeof value === 'object' && inputs[0].name in value);
      const given = single ? { [inputs[0].name]: value } : value;
      const feeds = inputs.filter(({ name }) => name in given).map((input) => [input.name, numbersTensor(input, given[input.name])]);
      give(Object.fromEntries(feeds), true);
    } catch (error) {
      fail(error);
    }
  };
  button.addEventListener('click', run);
  area.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) run();
  });
  return [
    h('label', { for: 'json' }, 'Input as JSON'),
    h('span', { class: 'soft' }, described(inputs)),
    area,
    h('div', { class: 'row' }, button, h('span', { class: 'soft' }, 'or Ctrl+Enter')),
  ];
}

/** No controls: the page sets the inputs, whose names and types are shown. @param {Context} context */
function none({ inputs }) {
  return [h('span', { class: 'soft' }, `Ready for ${described(inputs)}`)];
}

/** Describe inputs by name, type and dimensions. @param {readonly ValueMetadata[]} inputs */
function described(inputs) {
  return inputs.map(({ name, type, shape }) => `${name}: ${type} [${shape.map((dim) => dim || '?').join(', ')}]`).join('; ');
}

/** @type {Record<string, (context: Context) => HTMLElement[]>} */
export const INPUTS = { draw, image, json, none };
