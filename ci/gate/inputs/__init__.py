"""Reads files of measurements of any program as observations: files.read()."""
import sys
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parents[3])
if _ROOT not in sys.path:  # ci/gate.py is run as a script: the repository's reports/ reads our records
    sys.path.append(_ROOT)
