"""The regression gate (docs/gate.md)."""
import sys
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parents[2])
if _ROOT not in sys.path:  # ci/gate.py is run as a script: it shares words, pages, records and progress with reports/
    sys.path.append(_ROOT)
