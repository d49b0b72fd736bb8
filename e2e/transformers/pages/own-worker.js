// `run` in the page's own worker.
const worker = new Worker(new URL('./worker.js', import.meta.url), { type: 'module' });
globalThis.run = (name, options) => new Promise((resolve, reject) => {
  worker.onmessage = ({ data: { value, error } }) => (error ? reject(new Error(error)) : resolve(value));
  worker.onerror = ({ message }) => reject(new Error(message));
  worker.postMessage({ name, options });
});
globalThis.ready = true;
