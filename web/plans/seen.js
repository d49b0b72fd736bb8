// @ts-check
/** What the plans of a file are for, without memory: what `matches` of web/gpu/matching.js compares runs with. */

/** @typedef {import('./plan.js').SavedPlan} SavedPlan */
/** @typedef {import('./program.js').Entry} Entry */

/**
 * What a program is for, as `matches` of replay.js looks at it.
 * @param {import('./plan.js').Program} program
 * @param {Uint8Array} sections
 * @returns {Entry['seen']}
 */
export function seenOf({ plan, sizes, inputs, outputs, values, scalars }, sections) {
  const { uploads, unread, bounds, downloads, kept, expressions, patches } = plan;
  const known = sizes && { ...sizes, expressions, patches, params: new Uint8Array(), buffer: null };
  const fixed = Object.entries(values).map(([name, [at, nbytes]]) => ({ name, bytes: sections.slice(at, at + nbytes) }));
  const [given, left] = [slotsOf(plan, inputs), slotsOf(plan, outputs)];
  const seen = { uploads, unread, bounds, downloads, inputs: given, outputs: left, kept, values: fixed, scalars, sizes: known, live: true };
  return /** @type {any} */ (seen); // without memory
}

/**
 * External tensors of a plan as callers see them: of tensors with reserved rows, the valid rows only.
 * @param {SavedPlan} plan
 * @param {string[]} names
 */
function slotsOf({ external, kept }, names) {
  return external.filter(({ name }) => names.includes(name)).map(({ name, type, bits, dims, scaled, region: [, slot, , most] }) => {
    const given = kept.find((one) => one.input === name && one.given)?.given;
    return { name, type, bits, dims, scaled, ...given, slot, most };
  });
}
