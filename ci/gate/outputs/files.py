"""Files that appear whole or not at all, and that are known to be writable before anything is measured."""
import os
import tempfile
from pathlib import Path

from gate.errors import CouldNotRun

ALLOWED = "allowed: a file in a folder that is there and can be written"


def check_writable(path: Path, flag: str) -> None:
    """Raises CouldNotRun where `write_whole` would."""
    if path.exists() and not path.is_file():
        raise CouldNotRun(f"{flag} {path}: it is there and no regular file; {ALLOWED}")
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}.partial-"):
            pass
    except OSError as error:
        raise CouldNotRun(f"{flag} {path}: {error.strerror}; {ALLOWED}") from error


def write_whole(path: Path, content: str | bytes, flag: str) -> None:
    """To a hidden file beside it, then renamed."""
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        with partial.open("wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode("utf-8", "replace"))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise CouldNotRun(f"{flag} {path}: {error.strerror}; no file was left") from error
    finally:
        partial.unlink(missing_ok=True)
