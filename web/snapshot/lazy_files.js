// @ts-check
/** Files in Python's file system whose content is fetched on first read. */

/** `EIO` of WASI. */
const INPUT_OUTPUT_ERROR = 29;

/**
 * Fetch a file synchronously, while Python waits. In a page's thread only text can be fetched synchronously.
 * @param {string} url
 */
export function fetchNow(url) {
  const request = new XMLHttpRequest();
  request.open('GET', url, false);
  request.overrideMimeType('text/plain; charset=x-user-defined');
  request.send();
  if (request.status !== 200) throw new Error(`${url}: HTTP status ${request.status}`);
  return Uint8Array.from(request.responseText, (letter) => letter.charCodeAt(0));
}

/**
 * Return a function that calls `make` once; later calls return the same result, or throw the same error.
 * @template T
 * @param {() => T} make
 */
export function once(make) {
  /** @type {{value: T} | {error: unknown} | undefined} */
  let made;
  return () => {
    if (!made) {
      try {
        made = { value: make() };
      } catch (error) {
        made = { error };
      }
    }
    if ('error' in made) throw made.error;
    return made.value;
  };
}

/**
 * Create a file of `size` bytes. If it cannot be fetched, reading it in Python fails with an OSError.
 * @param {any} FS
 * @param {string} path
 * @param {number} size
 * @param {() => Uint8Array} read returns the content
 */
export function placeLazily(FS, path, size, read) {
  if (FS.analyzePath(path).exists) FS.unlink(path);
  const node = FS.create(path, 0o666);
  const keep = (/** @type {Uint8Array | null} */ value) => (
    Object.defineProperty(node, 'contents', { value, writable: true, configurable: true, enumerable: true }));
  node.usedBytes = size;
  Object.defineProperty(node, 'contents', {
    configurable: true,
    enumerable: true,
    get() {
      try {
        const content = read();
        keep(content);
        return content;
      } catch (error) {
        console.warn(`pyruntime: ${path} cannot be read: ${/** @type {Error} */ (error).message}`);
        throw new FS.ErrnoError(INPUT_OUTPUT_ERROR);
      }
    },
    set: keep,
  });
}
