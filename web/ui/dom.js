// @ts-check
/**
 * Create an element. The property `on` has listeners, `data` a dataset; all others are attributes (`true` sets it empty, `false`, `null`
 * and `undefined` omit it).
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, any>} [properties]
 * @param {...(Node | string | number | null | undefined | false)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === 'on') {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === 'data') {
      Object.assign(element.dataset, value);
    } else if (value === true) {
      element.setAttribute(name, '');
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, String(value));
    }
  }
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) {
      element.append(child instanceof Node ? child : String(child));
    }
  }
  return element;
}

/**
 * Return the element with this id, which must exist.
 * @template {HTMLElement} [T=HTMLElement]
 * @param {string} id
 * @returns {T}
 */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`The page has no element #${id}.`);
  return /** @type {T} */ (element);
}

/** Enter acts, Shift+Enter begins a line. @param {HTMLTextAreaElement} area @param {() => void} act */
export function onEnter(area, act) {
  area.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    act();
  });
}

/**
 * While something runs, show the button that stops it in the place of the one that starts it; the focus stays there.
 * @param {HTMLElement} go
 * @param {HTMLElement} stop
 * @param {boolean} isRunning
 */
export function showRunning(go, stop, isRunning) {
  const focused = /** @type {Document | ShadowRoot} */ (go.getRootNode()).activeElement;
  go.hidden = isRunning;
  stop.hidden = !isRunning;
  if (focused === go || focused === stop) (isRunning ? stop : go).focus();
}

/** A button that copies `text`. @param {string} text @param {string} [words] @param {string} [label] for who does not see the text next to it */
export function copyButton(text, words = 'Copy', label) {
  const button = h('button', { type: 'button', class: 'quiet small', 'aria-label': label, on: {
    async click() {
      await navigator.clipboard.writeText(text);
      button.textContent = 'Copied';
      window.setTimeout(() => { button.textContent = words; }, 1500);
    },
  } }, words);
  return button;
}

/** Offer a file to the visitor. @param {Blob} blob @param {string} name */
export function saveAs(blob, name) {
  const url = URL.createObjectURL(blob);
  h('a', { href: url, download: name }).click();
  window.setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
