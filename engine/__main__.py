"""`python -m engine MODEL ...`: an engine core process."""

import sys

from engine.core.main import main

sys.exit(main())
