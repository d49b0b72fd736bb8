// Does what a test's policy or guard must notice: fetches a URL, logs an error, evaluates a string.
self.addEventListener('message', async ({ data }) => {
  if (data === 'log') {
    console.error('positive control');
    self.postMessage('logged');
  } else if (data === 'eval') {
    try {
      self.postMessage(eval('1 + 1'));
    } catch (error) {
      self.postMessage(error.name);
    }
  } else {
    fetch(data).then(() => self.postMessage('answered'), () => self.postMessage('aborted'));
  }
});
