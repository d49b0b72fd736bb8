// @ts-check
/** Names of a model's classes. */

/**
 * The names that an attribute has, separated by commas, or those of the file that it names, one a line or of JSON.
 * @param {string | null} attribute
 * @param {string} base what a file's address is relative to
 * @returns {Promise<string[]>}
 */
export async function readLabels(attribute, base) {
  const given = attribute?.trim() ?? '';
  if (!/^\S+\.(txt|json)$/i.test(given)) return given ? given.split(',').map((label) => label.trim()) : [];
  const response = await fetch(new URL(given, base));
  if (!response.ok) throw new Error(`the labels ${given} cannot be fetched: HTTP status ${response.status}`);
  const text = await response.text();
  return /\.json$/i.test(given) ? JSON.parse(text) : text.trim().split(/\r?\n/);
}
