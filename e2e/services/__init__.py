"""What is missing in some places that pages run in: each works without it, or says what it needs."""
