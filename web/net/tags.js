// @ts-check
/** Compare validators of responses, to tell whether they are of the same file. Source: RFC 9110, section 8.8. */

/** Return the strong ETag of a response; '' if it has none. @param {Response} response */
export function strongTag({ headers }) {
  const tag = headers.get('ETag') ?? '';
  return tag.startsWith('W/') ? '' : tag;
}
