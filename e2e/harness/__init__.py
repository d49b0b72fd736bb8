"""Support for the browser tests: a guarded browser, and Python inside it."""
