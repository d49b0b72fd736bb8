"""Entry point of `python -m pyruntime`."""

import sys

from pyruntime.cli import main

sys.exit(main(sys.argv[1:]))
