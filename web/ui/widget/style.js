// @ts-check
/** The widget's style. Colors follow the `color-scheme` of the surrounding element; all can be set from outside. */

const TEXT = `
:host {
  --accent: var(--pyruntime-accent, light-dark(#2742c4, #9db0ff));
  --on-accent: var(--pyruntime-on-accent, oklch(from var(--accent) clamp(0.1, (0.66 - l) * 1000, 1) 0 h));
  --background: var(--pyruntime-background, light-dark(#fff, #161b1e));
  --ink: var(--pyruntime-color, light-dark(#14191c, #e8edef));
  --soft: var(--pyruntime-muted, light-dark(#566066, #9aa6ac));
  --rule: var(--pyruntime-border, light-dark(#d5dcd8, #2b3338));
  --grid: var(--pyruntime-grid, light-dark(#e2eae6, #20292b));
  --bar: var(--pyruntime-bar, light-dark(#b9c2c8, #46525a));
  --bad: var(--pyruntime-error, light-dark(#a8231a, #ffa79f));
  display: block;
  max-width: var(--pyruntime-width, 34rem);
  color: var(--ink);
  font: var(--pyruntime-font, 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif);
  contain: layout style;
}
:host([hidden]), [hidden] { display: none !important; }
*, *::before, *::after { box-sizing: border-box; }
p, ol, dl, dd, pre { margin: 0; padding: 0; }
[part="base"] {
  display: grid;
  gap: 1rem;
  padding: 1rem;
  border: 1px solid var(--rule);
  border-radius: var(--pyruntime-radius, 10px);
  background: var(--background);
}
button, [part="choose"] {
  display: inline-flex;
  align-items: center;
  justify-content: center;
  min-height: 2.5rem;
  padding: 0.4rem 1rem;
  border: 1px solid var(--accent);
  border-radius: 6px;
  background: var(--accent);
  color: var(--on-accent);
  font: inherit;
  cursor: pointer;
}
button:hover, [part="choose"]:hover { filter: brightness(1.12); }
button:disabled { opacity: 0.55; cursor: default; filter: none; }
button.quiet { border-color: var(--rule); background: none; color: var(--ink); }
:focus-visible, .chooser:focus-within [part="choose"] { outline: 2px solid var(--accent); outline-offset: 2px; }
.soft { color: var(--soft); font-size: 0.875rem; line-height: 1.45; }
.row { display: flex; flex-wrap: wrap; align-items: center; justify-content: space-between; gap: 0.5rem 1rem; }
.hidden {
  position: absolute;
  width: 1px;
  height: 1px;
  overflow: hidden;
  clip-path: inset(50%);
  white-space: nowrap;
}
[part="poster"] {
  position: relative;
  display: grid;
  place-items: center;
  min-height: 9rem;
  overflow: hidden;
  border-radius: 6px;
  background: var(--grid);
}
[part="poster"] img, [part="poster"] ::slotted(*) { display: block; max-width: 100%; max-height: 24rem; }
[part="poster"] > * { grid-area: 1 / 1; }
[part="start"] { z-index: 1; box-shadow: 0 1px 8px rgb(0 0 0 / 0.25); }
[part="loading"] { display: grid; gap: 0.5rem; align-content: center; min-height: 5rem; }
[part="track"] { height: 0.375rem; overflow: hidden; border-radius: 99px; background: var(--grid); }
[part="track"]::before {
  content: "";
  display: block;
  height: 100%;
  border-radius: inherit;
  background: var(--accent);
  transform: scaleX(var(--done, 0.02));
  transform-origin: left;
  transition: transform 200ms;
}
:host(:dir(rtl)) [part="track"]::before { transform-origin: right; }
.ready { display: grid; gap: 1rem; }
.ready.two { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); align-items: start; }
[part="input"] { display: grid; gap: 0.6rem; min-width: 0; }
[part="input"]:empty, [part="output"]:empty { display: none; }
[part="output"] { display: grid; gap: 0.75rem; min-width: 0; align-content: start; }
.pad {
  position: relative;
  aspect-ratio: 1;
  border: 1px solid var(--rule);
  background: linear-gradient(to right, var(--grid) 1px, transparent 1px) 0 0 / 6.25% 6.25%,
    linear-gradient(var(--grid) 1px, transparent 1px) 0 0 / 6.25% 6.25%;
}
.pad canvas {
  position: absolute;
  inset: 0;
  width: 100%;
  height: 100%;
  color: var(--accent);
  cursor: crosshair;
  touch-action: none;
}
.pad .hint {
  position: absolute;
  inset: 0;
  display: grid;
  place-items: center;
  padding: 1rem;
  color: var(--soft);
  text-align: center;
  pointer-events: none;
}
.pad .pen {
  position: absolute;
  left: calc(100% * var(--x, 0.5));
  top: calc(100% * var(--y, 0.5));
  width: 0.9rem;
  height: 0.9rem;
  border: 2px solid var(--accent);
  border-radius: 50%;
  transform: translate(-50%, -50%);
  pointer-events: none;
}
.pad .pen.down { background: var(--accent); }
.drop {
  display: grid;
  justify-items: center;
  align-content: center;
  gap: 0.6rem;
  min-height: 9rem;
  padding: 0.75rem;
  border: 1px dashed var(--rule);
  border-radius: 6px;
  text-align: center;
}
.drop.over { border-color: var(--accent); background: var(--grid); }
.drop canvas, [part="picture"] { display: block; max-width: 100%; max-height: 22rem; border-radius: 4px; }
.drop > div { display: grid; justify-items: center; width: 100%; }
canvas.small { width: min(100%, 10rem); image-rendering: pixelated; }
textarea {
  width: 100%;
  min-height: 7rem;
  padding: 0.5rem 0.6rem;
  border: 1px solid var(--rule);
  border-radius: 6px;
  background: var(--background);
  color: inherit;
  font: 0.875rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace;
  resize: vertical;
}
[part="text"], [part="log"] p { white-space: pre-wrap; overflow-wrap: anywhere; }
[part="prompt"] { min-height: 4rem; font: inherit; }
[part="begun"] { color: var(--soft); }
[part="log"] {
  display: grid;
  gap: 0.75rem;
  max-height: 24rem;
  padding: 0.75rem 0.9rem;
  overflow-y: auto;
  border: 1px solid var(--rule);
  border-radius: 6px;
}
[part~="user"] p { color: var(--accent); }
[part="bars"] {
  display: grid;
  grid-template-columns: minmax(1.5ch, auto) minmax(2rem, 1fr) 7ch;
  gap: 0.3rem 0.6rem;
  list-style: none;
}
[part="bar"] {
  display: grid;
  grid-column: 1 / -1;
  grid-template-columns: subgrid;
  align-items: center;
  color: var(--soft);
  font-size: 0.9375rem;
  line-height: 1.35;
  font-variant-numeric: tabular-nums;
}
[part="bars"].long { grid-template-columns: minmax(0, 1fr) 7ch; }
[part="bars"].long .track { grid-column: 1 / -1; }
[part="bar"] .track { height: 0.6rem; background: var(--grid); }
[part="bar"] .fill {
  display: block;
  height: 100%;
  background: var(--bar);
  transform: scaleX(var(--part, 0));
  transform-origin: left;
  transition: transform 90ms ease-out;
}
:host(:dir(rtl)) .fill { transform-origin: right; }
[part="bar"] .value { text-align: end; }
[part="bar"].best { color: var(--ink); font-weight: 600; }
[part="bar"].best .fill { background: var(--accent); }
.name { overflow: hidden; text-overflow: ellipsis; }
pre { overflow-x: auto; font: 0.875rem/1.6 ui-monospace, "SF Mono", Menlo, Consolas, monospace; white-space: pre-wrap; }
.failed [part="message"] { order: -1; }
[part="message"] { color: var(--bad); overflow-wrap: anywhere; }
@container (max-width: 26rem) { .ready.two { grid-template-columns: minmax(0, 1fr); } }
[part="base"] > .frame { container-type: inline-size; min-width: 0; }
@media (prefers-reduced-motion: reduce) { *, *::before { transition: none !important; } }
@media (forced-colors: active) {
  [part="track"]::before, [part="bar"] .fill { background: CanvasText; forced-color-adjust: none; }
}
`;

/** @type {CSSStyleSheet | undefined} */
let sheet;

/** Return the style sheet that all widgets of a page share. A constructed sheet is allowed by a strict policy. */
export function styleSheet() {
  if (!sheet) {
    sheet = new CSSStyleSheet();
    sheet.replaceSync(TEXT);
  }
  return sheet;
}
