// The page of the `python_in_browser` fixture: `runPython(source, data)` runs in python_worker.js.
const url = new URL(`./python_worker.js${globalThis.location.search}`, import.meta.url);
const worker = new Worker(url, { type: 'module', name: 'python' });
const pending = new Map();
let lastId = 0;

worker.addEventListener('message', ({ data: { id, answer } }) => {
  pending.get(id)(answer);
  pending.delete(id);
});
worker.addEventListener('error', ({ message }) => {
  for (const resolve of pending.values()) resolve(JSON.stringify({ error: `the worker failed: ${message}` }));
});

globalThis.runPython = (source, data) => new Promise((resolve) => {
  const id = ++lastId;
  pending.set(id, resolve);
  worker.postMessage({ id, source, data });
});
