"""``python -m fedqcl``."""

import sys

from fedqcl.cli import main

if __name__ == "__main__":
    sys.exit(main())
