"""Trace files that a run wrote (--trace FILE): copied beside the page if they lie beside the records."""
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Sequence

from reports.records import Records, Run


@dataclass(frozen=True)
class TraceLink:
    name: str
    href: str
    what: str  # the command that wrote it


def trace_name(run: Run) -> Optional[str]:
    for word, following in zip(run.command, [*run.command[1:], ""]):
        if word == "--trace":
            return following or None
        if word.startswith("--trace="):
            return word.removeprefix("--trace=")
    return None


def copy_traces(records: Records, files: Sequence[str], folder: Path) -> list[TraceLink]:
    """Absolute paths are not in records: a trace is looked for in the folder of the records, then where we run."""
    links: dict[str, TraceLink] = {}
    for run in records.runs:
        name = trace_name(run)
        source = name and _found(name, files)
        if not source or source.name in links:
            continue
        folder.mkdir(exist_ok=True)
        shutil.copyfile(source, folder / source.name)
        links[source.name] = TraceLink(source.name, f"{folder.name}/{source.name}", " ".join(run.command))
    return list(links.values())


def _found(name: str, files: Sequence[str]) -> Optional[Path]:
    places = [*(Path(file).parent for file in files), Path(".")]
    candidates = [place / part for place in places for part in (name, Path(name).name)]
    return next((path for path in candidates if path.is_file()), None)
