"""The command line: see the package."""

import sys

from fuzz.run import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
