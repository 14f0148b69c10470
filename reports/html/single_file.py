"""A page in one file, to be an artifact of CI: its figures are in it, and it links to nothing beside it."""
import base64
from pathlib import Path
from tempfile import TemporaryDirectory

from reports.analysis.gate.results import analyse_gates
from reports.html.gate_view import gate_page_of, render_gates
from reports.html.write import PageLink, html_of
from reports.records import Records


def gate_file(records: Records) -> str:
    """The gate's page of these records, as text of HTML."""
    results = analyse_gates(records)
    with TemporaryDirectory() as name:
        page = gate_page_of(records, results, render_gates(results, Path(name)), files=[])
        return html_of(page, "gate", [PageLink("gate", "")], figure_source=lambda file: _as_data(Path(name) / file))


def _as_data(file: Path) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(file.read_bytes()).decode("ascii")
