"""Writes the report's folder: built beside its place, then renamed into it, so that a failure leaves the old one."""
import os
import shutil
from pathlib import Path
from typing import Sequence

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from reports.analysis.results import Analysis
from reports.errors import ReportError
from reports.html.view import Page, page_of
from reports.plots.figures import render_all
from reports.records import Records
from reports.units import unbroken

HERE = Path(__file__).resolve().parent
MARK = ".lockstep-report"  # in every folder that we may replace


def write_report(records: Records, analysis: Analysis, out: Path) -> Path:
    """The page's path. Raises ReportError if the folder cannot be written or is not ours to replace."""
    out = Path(os.path.abspath(out))
    if out.exists() and not _replaceable(out):
        raise ReportError(f"-o {out}: exists and is not a report; name a new folder or one that holds a report")
    building, old = (out.with_name(f"{out.name}.{word}-{os.getpid()}") for word in ("new", "old"))
    try:
        building.mkdir(parents=True)
        _build(records, analysis, building)
        _swap(building, out, old)
    except OSError as error:
        raise ReportError(f"-o {out}: cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(building, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
    return out / "index.html"


def _replaceable(out: Path) -> bool:
    return out.is_dir() and ((out / MARK).exists() or not any(out.iterdir()))


def _swap(building: Path, out: Path, old: Path) -> None:
    if out.exists():
        out.rename(old)
    try:
        building.rename(out)
    except OSError:
        if old.exists():
            old.rename(out)
        raise


def _build(records: Records, analysis: Analysis, folder: Path) -> None:
    files = copy_records(records.files, folder / "records")
    figures = render_all(analysis.results, folder / "figures")
    page = page_of(records, analysis, figures, files)
    (folder / "index.html").write_text(html_of(page), encoding="utf-8")
    (folder / MARK).write_text("written by python3 -m reports, which replaces this folder\n", encoding="utf-8")


def copy_records(files: Sequence[str], folder: Path) -> list[str]:
    """The names of the copies: the files' own, numbered where two are equal."""
    folder.mkdir()
    names: list[str] = []
    for file in files:
        source = Path(file)
        name, number = source.name, 1
        while name in names:
            number += 1
            name = f"{source.stem}-{number}{source.suffix}"
        shutil.copyfile(source, folder / name)
        names.append(name)
    return names


def html_of(page: Page) -> str:
    # Inline style and script come from our own files; everything from records is escaped.
    environment = Environment(loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined,
                              trim_blocks=True, lstrip_blocks=True)
    environment.filters["nb"] = unbroken
    assets = {name: (HERE / "assets" / name).read_text(encoding="utf-8") for name in ("page.css", "page.js")}
    return environment.get_template("page.html").render(page=page, css=assets["page.css"], js=assets["page.js"])
