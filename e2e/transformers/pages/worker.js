// A module worker of the page's own that has the library: import maps end at the page, so it takes the bundled file.
import { cases, plain } from './cases.js';
import './web/transformers.js';

const ready = (async () => {
  const t = await import('./transformers/dist/transformers.min.js');
  Object.assign(t.env, { allowRemoteModels: false, allowLocalModels: true, localModelPath: '/models/', useBrowserCache: false });
  return t;
})();

self.addEventListener('message', async ({ data: { name, options } }) => {
  try {
    self.postMessage({ value: plain(await cases[name](await ready, options)) });
  } catch (error) {
    self.postMessage({ error: String(error?.stack ?? error) });
  }
});
