"""GPU devices of the browser."""
