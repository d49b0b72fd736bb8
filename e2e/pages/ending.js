// Gives this thread `endPython()`, which ends its Python as an access out of its memory does.
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
