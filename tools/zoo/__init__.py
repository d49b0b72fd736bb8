"""The zoo: architectures with random weights, exported, run, and compared with onnxruntime. `dev.py zoo` runs it.

definitions/ says what is in it, as data; definitions.py reads that. export.py (in an environment with torch) writes
models and inputs to .cache/zoo; check.py compares them natively and plans them; browser.py runs them in Chromium;
table.py writes their section of docs/MODELS.md; failures.toml is the strict list of what does not agree; sample.py is
the part that is committed. treatments.py and treated.py: the same for files that went through optimisers,
quantisers and such, natively; treated.toml is their list. trained/: the same for trained models that packages ship.
document.py puts the sections of docs/MODELS.md together.
"""
