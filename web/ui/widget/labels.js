// @ts-check
/** Class names of a model. */

/**
 * Return the class names in an attribute, separated by commas, or in the file that it names, one a line or as JSON.
 * @param {string | null} attribute
 * @param {string} base base URL of the file's address
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
