// Runs Python source in the very environment that web/worker.js gives to sessions.
import './faults.js';
import './limited.js';
import { places } from '../src/web/api/env.js';
import { startPython } from '../src/web/worker/runtime.js';

// From nothing, as in a notebook, or `?snapshot` as the page does; `?alone`: without web/gpu/device.js, as in a notebook, too.
const { searchParams } = new URL(self.location.href);
const snapshot = searchParams.has('snapshot');
const ready = (async () => {
  const from = snapshot ? places() : { ...places(), snapshotUrl: undefined };
  const pyodide = await startPython(from, () => {}, (message) => self.reportError(new Error(message)));
  if (searchParams.has('alone')) pyodide.unregisterJsModule('pyruntime_device');
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
