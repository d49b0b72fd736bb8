// @ts-check
/** Validate what plans for WebAssembly have, beyond those for a GPU. */

import { check, refuse } from './checks.js';

/**
 * @typedef {object} WasmModule addresses of what is in its memory, and `code` in the plan's sections
 * @property {[offset: number, nbytes: number]} code
 * @property {number} pages
 * @property {number[]} buffers of constants
 * @property {number[]} computed constants
 * @property {number[][]} arenas of each program
 */

/** Bytes of a page of memory. */
export const PAGE = 1 << 16;

/** Pages that 32-bit addresses reach. */
const MOST_PAGES = 1 << 16;

/** Limits that plans for WebAssembly are checked against, where those for a GPU are checked against a device's. */
export const LIMITS = /** @type {GPUSupportedLimits} */ (/** @type {unknown} */ (
  { maxBufferSize: MOST_PAGES * PAGE, maxComputeWorkgroupsPerDimension: 2 ** 32 - 1 }));

/** Validate where a module is, and the addresses of what runs read and write. @param {any} header @param {number} sections */
export function checkModule({ module, buffers, computed, programs }, sections) {
  check.object(module, 'a module');
  check.integer(module.pages, MOST_PAGES, 'pages', 1);
  check.list(module.code, 'code', (n) => check.integer(n, sections, 'code'), 2);
  if (module.code.length !== 2 || module.code[0] + module.code[1] > sections) refuse('it is damaged: code');
  const inside = (/** @type {any} */ addresses, /** @type {number[]} */ sizes) => {
    check.list(addresses, 'addresses', (at, i) => check.integer(at, module.pages * PAGE - sizes[i], 'an address'), sizes.length);
    if (addresses.length !== sizes.length) refuse('it is damaged: addresses');
  };
  inside(module.buffers, buffers.map((/** @type {any} */ buffer) => buffer[0]));
  inside(module.computed, computed.map((/** @type {any} */ plan) => plan.external[0].region[3]));
  check.list(module.arenas, 'arenas', (arenas, i) => inside(arenas, programs[i]?.plan.arenas ?? []), programs.length);
  for (const { plan, sizes, inputs, outputs } of programs) {
    if (sizes || inputs.length + outputs.length + plan.kept.length) refuse('it is damaged: dynamic dimensions, or tensors that stay');
    if (plan.downloads.concat(plan.uploads).some((/** @type {any} */ t) => t.region[0] !== 0)) refuse('it is damaged: a tensor outside arenas');
  }
  if (module.arenas.length !== programs.length) refuse('it is damaged: arenas');
}
