"""View for the template: the results in the page's arrangement, with all text ready."""
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import Optional, Sequence

from reports.analysis.caveats import caveat_of
from reports.analysis.findings import badge_of, Finding, main_findings, maps_of, WinnerMap
from reports.analysis.results import Analysis, basis_text, PanelResult
from reports.check import Note, notes_on_collectives
from reports.html.run_view import BadLine, Fact, MachineView, RunView, machine_views, run_facts, run_views
from reports.html.tables import Table, percentile_table, plan_table, results_table, winner_table
from reports.plots.figures import FigureFile
from reports.records import Records, Row
from reports.units import bytes_text, collective_name, counted, joined


@dataclass(frozen=True)
class PanelView:
    anchor: str
    result: PanelResult
    badge: str  # "emulated link of ..."; empty if measured
    about_prediction: str  # reason why there is no prediction, or where it comes from
    figures: Sequence[FigureFile]
    tables: Sequence[Table]
    caveat: str


@dataclass(frozen=True)
class MapView:
    winners: WinnerMap
    badge: str
    figure: FigureFile
    table: Table


@dataclass(frozen=True)
class Section:
    anchor: str
    name: str
    maps: Sequence[MapView]
    panels: Sequence[PanelView]


@dataclass(frozen=True)
class Page:
    facts: Sequence[Fact]
    findings: Sequence[Finding]
    notes: Sequence[Note]
    bad_rows: Sequence[BadLine]
    sections: Sequence[Section]
    runs: Sequence[RunView]
    machines: Sequence[MachineView]
    files: Sequence[str]


def page_of(records: Records, analysis: Analysis, figures: Sequence[Sequence[FigureFile]],
            map_figures: Sequence[FigureFile], files: Sequence[str]) -> Page:
    maps = [MapView(one, badge_of(one.setting), figure, winner_table(one))
            for one, figure in zip(maps_of(analysis.results), map_figures)]
    panels = [_panel(number, result, figures[number - 1]) for number, result in enumerate(analysis.results, start=1)]
    return Page(facts=_facts(records), findings=main_findings(analysis.results),
                notes=notes_on_collectives(records, analysis),
                bad_rows=[_bad(row) for row in records.rows if not row.ok], sections=_sections(panels, maps),
                runs=run_views(records), machines=machine_views(records), files=files)


def _sections(panels: Sequence[PanelView], maps: Sequence[MapView]) -> list[Section]:
    grouped = groupby(panels, key=lambda view: view.result.panel.setting.collective)
    return [Section(name.replace("_", "-"), collective_name(name),
                    [one for one in maps if one.winners.setting.collective == name], list(views))
            for name, views in grouped]


def _panel(number: int, result: PanelResult, figures: Sequence[FigureFile]) -> PanelView:
    setting, predictions = result.panel.setting, result.predictions
    tables = [plan_table(predictions)] if predictions.by_label else []
    spread = percentile_table(result.panel)
    tables += [results_table(result)] + ([spread] if spread.lines else [])
    return PanelView(f"panel-{number}", result, "" if setting.basis == "measured" else basis_text(setting),
                     _about_prediction(result), figures, tables, caveat_of(result.panel.rows))


def _about_prediction(result: PanelResult) -> str:
    """Warning about the predicted times; empty if there is nothing to warn of."""
    predictions = result.predictions
    if not result.panel.series or not predictions.no_fit:
        return ""
    if not predictions.by_label:
        return f"Measured against predicted: not possible here, {predictions.no_fit}."
    if predictions.left_out:
        return f"No prediction for {joined(list(predictions.left_out))}: {predictions.no_fit}."
    return f"No alpha and beta from send/recv, {predictions.no_fit}; the predicted times are the program's own."


def _facts(records: Records) -> list[Fact]:
    rows = records.rows
    sizes = [row.bytes for row in rows if row.bytes > 0]
    programs = joined(sorted({run.program for run in records.runs}))
    ranks = joined([str(n) for n in sorted({row.ranks for row in rows})])
    over = joined(sorted({f"{row.transport} ({row.run.rank_kind})" for row in rows}))
    spans = f"{bytes_text(min(sizes))} to {bytes_text(max(sizes))}" if sizes else "0 B"
    samples = sum(len(row.samples_us) for row in rows)
    return run_facts(records, [
        Fact("What was run", f"{programs}: {ranks} ranks over {over}, {spans}"),
        Fact("Rows", f"{len(rows):,} rows, {samples:,} timed calls; {_verified(rows)}"),
        Fact("Basis", joined([f"{number:,} rows {basis}" for basis, number in Counter(r.basis for r in rows).items()])),
    ])


def _verified(rows: Sequence[Row]) -> str:
    verified = sum(row.ok and row.wrong is not None for row in rows)
    return "all verified" if verified == len(rows) else f"{verified:,} verified"


def _bad(row: Row) -> BadLine:
    place = "in place" if row.in_place else "out of place"
    what = (f"{collective_name(row.collective)} {row.algorithm}, {counted(row.ranks, 'rank')} over {row.transport}, "
            f"{bytes_text(row.bytes)}, {row.dtype} {row.op}, {place}, {row.basis}")
    wrong: Optional[str] = f"{counted(row.wrong, 'element')} differ" if row.wrong else None
    return BadLine(row.status, what, "; ".join(part for part in (wrong, row.error) if part) or "no reason recorded")
