// web/worker.js with `endPython()`, which ends Python as an access out of its memory does.
import '../web/worker.js';

Object.defineProperty(Object.prototype, 'on_fatal', {
  configurable: true,
  set(told) {
    Object.defineProperty(this, 'on_fatal', { value: told });
    globalThis.endPython = () => {
      try {
        this.fatal_error(new RangeError('on purpose'));
      } catch {
        // it is thrown as well
      }
    };
  },
});
