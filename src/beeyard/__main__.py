"""`python -m beeyard`: the command `beeyard`."""

import sys

from beeyard.cli.main import main

sys.exit(main())
