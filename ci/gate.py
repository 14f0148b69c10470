#!/usr/bin/env python3
"""The regression gate: python3 ci/gate.py --help."""
import sys

from gate.cli import main

if __name__ == "__main__":
    sys.exit(main())
