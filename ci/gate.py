#!/usr/bin/env python3
"""The regression gate: python3 ci/gate.py --help."""
import signal
import sys

CANNOT_RUN = 4  # as in docs/gate.md: Python's own status of an error, 1, would mean a regression

try:
    from gate.cli import main
except ModuleNotFoundError as error:
    if (error.name or "gate").split(".")[0] in ("gate", "reports"):
        raise
    print(f"gate.py: needs Python's {error.name}, which {sys.executable} has not; allowed: /usr/bin/python3 ci/gate.py, for which "
          "ci/install.sh report installs it", file=sys.stderr)
    sys.exit(CANNOT_RUN)

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a cancelled job ends its workers and builds too
    sys.exit(main())
