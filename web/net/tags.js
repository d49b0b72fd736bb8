// @ts-check
/** Compare validators of responses: whether two responses are of the same file. Source: RFC 9110, section 8.8. */

/** What a server says that changes with each byte of a file; '' where it says nothing of the kind. @param {Response} response */
export function strongTag({ headers }) {
  const tag = headers.get('ETag') ?? '';
  return tag.startsWith('W/') ? '' : tag;
}
