"""Programs, stages and runs."""
