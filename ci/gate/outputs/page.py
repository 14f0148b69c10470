"""A report as a page of HTML in one file: the one that python3 -m reports makes of its records."""
from collections.abc import Sequence
from importlib.util import find_spec

from gate.errors import CouldNotRun

NEEDED = ("matplotlib", "jinja2", "jsonschema")


def check_packages() -> None:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise CouldNotRun(f"--html: needs Python's {' and '.join(missing)} (ci/install.sh report), not installed here")


def page(lines: Sequence[dict]) -> str:
    """Page of the lines that --records writes."""
    from reports.html.single_file import gate_file  # matplotlib takes a second to import
    from reports.records import Records, line_from, run_from

    runs = {line["run"]: run_from(line) for line in lines if line["record"] == "run"}
    verdicts, histories = (tuple(line_from(line, runs[line["run"]]) for line in lines if line["record"] == kind)
                           for kind in ("verdict", "history"))
    return gate_file(Records((), tuple(runs.values()), verdicts=verdicts, histories=histories))
