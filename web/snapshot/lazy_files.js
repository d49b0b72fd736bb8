// @ts-check
/** Files of Python's file system whose content is fetched when it is first read. */

/** `EIO` of WASI. */
const INPUT_OUTPUT_ERROR = 29;

/**
 * Fetch a file while Python waits for it. A page's own thread may only fetch text synchronously.
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
 * A function that calls `make` at its first call; later calls give the same result, or throw the same error.
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
 * Make a file of `size` bytes. Python sees it as any other: where it cannot be fetched, reading it fails with an OSError.
 * @param {any} FS
 * @param {string} path
 * @param {number} size
 * @param {() => Uint8Array} read gives the content
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
