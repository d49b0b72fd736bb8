"""The implementation of `dev.py`: set-up, build, server. Only the standard library, as no environment exists yet."""
