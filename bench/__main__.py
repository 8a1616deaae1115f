"""`python -m bench`, which `fastfront bench` runs in the engine environment."""

import sys

from bench.cli import main

if __name__ == "__main__":
    sys.exit(main())
