"""Tools of the documentation site: mkdocs.yml names `hooks.py`; `declarations.py` writes the JavaScript API."""
