// The page: returns the worker's result as text, for Playwright.
const worker = new Worker('make_worker.js', { type: 'module' });

function base64(buffer) {
  const bytes = new Uint8Array(buffer);
  let text = '';
  for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
  return btoa(text);
}

globalThis.snapshot = new Promise((resolve, reject) => {
  worker.addEventListener('error', ({ message }) => reject(new Error(message)));
  worker.addEventListener('message', ({ data }) => {
    if (data.error) reject(new Error(data.error));
    else {
      const text = ([name, value]) => [name, value instanceof ArrayBuffer ? base64(value) : value];
      resolve(Object.fromEntries(Object.entries(data).map(text)));
    }
  });
});
