"""What `dev.py` does: set-up, build, server. Standard library only: it runs before the environment exists."""
