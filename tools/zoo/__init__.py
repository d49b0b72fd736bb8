"""The zoo: architectures with random weights, exported, run, and compared with onnxruntime. `dev.py zoo` runs it.

definitions/ lists the models as data, read by definitions.py. export.py (in an environment with torch) writes models
and inputs to .cache/zoo; check.py compares them natively and plans them; browser.py runs them in Chromium; table.py
writes docs/architectures.md; failures.toml is the strict list of known failures; sample.py is the part that is
committed. treatments.py and treated.py do the same natively for files modified by optimizers, quantizers and similar
tools, with the list treated.toml. trained/ does it for trained models in packages.
"""
