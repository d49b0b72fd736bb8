// Notes every event of every widget, as a page of its own would listen to them, and then loads the element.
globalThis.seen = [];
for (const element of document.querySelectorAll('pyruntime-model')) {
  for (const type of ['progress', 'load', 'result', 'error']) {
    element.addEventListener(type, ({ detail }) => {
      const { phase, totalProgress, error, outputs, ms } = detail;
      globalThis.seen.push({
        id: element.id, type, phase, totalProgress, ms, message: error?.message, outputs: Object.keys(outputs ?? {}) });
    });
  }
}
await import('/web/widget.js');
