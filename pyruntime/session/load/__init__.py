"""From what the caller gave to a session."""
