"""What the documentation site is made with: mkdocs.yml names `hooks.py`; `declarations.py` writes JavaScript's API."""
