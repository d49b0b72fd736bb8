"""What the browser tests stand on: a guarded browser, and Python inside it."""
