"""`python -m msrun_cli`: the same program under a name that nobody else owns."""

import sys

from msrun_cli.cli.dispatch import main

if __name__ == "__main__":
    sys.exit(main())
