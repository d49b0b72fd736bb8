// Runs Python source in the very environment that web/worker.js gives to sessions.
import './faults.js';
import { env, pyodideUrls } from '../web/env.js';
import { startPython } from '../web/runtime.js';

const places = { pyodideUrls: pyodideUrls(), wheelUrl: env.wheelUrl };
const ready = (async () => {
  const pyodide = await startPython(places, () => {});
  const response = await fetch(new URL('../harness/codec.py', self.location.href));
  pyodide.FS.writeFile(`${sitePackages(pyodide)}/e2e_codec.py`, await response.text());
  return pyodide.pyimport('e2e_codec');
})();

function sitePackages(pyodide) {
  return pyodide.pyimport('sysconfig').get_path('purelib');
}

self.addEventListener('message', async ({ data: { id, source, data } }) => {
  let answer;
  try {
    answer = await (await ready).run(source, data);
  } catch (error) {
    answer = JSON.stringify({ error: String(error) });
  }
  self.postMessage({ id, answer });
});
