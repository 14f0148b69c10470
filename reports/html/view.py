"""What the template shows: the results arranged as the page is, all text made."""
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import Optional, Sequence

from reports.analysis.findings import Finding, main_findings
from reports.analysis.results import Analysis, PanelResult, basis_text, headline
from reports.check import Note, machine_text, notes_on
from reports.html.tables import Table, percentile_table, plan_table, results_table
from reports.plots.figures import FigureFile
from reports.records import Machine, Records, Row, Run
from reports.units import bytes_text, collective_name, counted, joined


@dataclass(frozen=True)
class Fact:
    name: str
    text: str


@dataclass(frozen=True)
class BadRow:
    status: str
    what: str
    why: str


@dataclass(frozen=True)
class PanelView:
    anchor: str
    result: PanelResult
    badge: str  # "emulated link of ..."; empty for what was measured
    about_prediction: str  # why there is none, or where it comes from
    figures: Sequence[FigureFile]
    tables: Sequence[Table]


@dataclass(frozen=True)
class Section:
    anchor: str
    name: str
    panels: Sequence[PanelView]


@dataclass(frozen=True)
class RunView:
    run: Run
    command: str
    rows: int
    libraries: str


@dataclass(frozen=True)
class Page:
    facts: Sequence[Fact]
    findings: Sequence[Finding]
    notes: Sequence[Note]
    bad_rows: Sequence[BadRow]
    sections: Sequence[Section]
    runs: Sequence[RunView]
    machines: Sequence[Sequence[Fact]]
    files: Sequence[str]


def page_of(records: Records, analysis: Analysis, figures: Sequence[Sequence[FigureFile]],
            files: Sequence[str]) -> Page:
    panels = [_panel(number, result, figures[number - 1]) for number, result in enumerate(analysis.results, start=1)]
    return Page(facts=_facts(records), findings=main_findings(analysis.results), notes=notes_on(records, analysis),
                bad_rows=[_bad(row) for row in records.rows if not row.ok], sections=_sections(panels),
                runs=_runs(records), machines=[_machine(m) for m in _machines(records)], files=files)


def _sections(panels: Sequence[PanelView]) -> list[Section]:
    grouped = groupby(panels, key=lambda view: view.result.panel.setting.collective)
    return [Section(name.replace("_", "-"), collective_name(name), list(views)) for name, views in grouped]


def _panel(number: int, result: PanelResult, figures: Sequence[FigureFile]) -> PanelView:
    setting, predictions = result.panel.setting, result.predictions
    tables = [plan_table(predictions)] if predictions.by_label else []
    spread = percentile_table(result.panel)
    tables += [results_table(result)] + ([spread] if spread.lines else [])
    return PanelView(f"panel-{number}", result, "" if setting.basis == "measured" else basis_text(setting),
                     _about_prediction(result), figures, tables)


def _about_prediction(result: PanelResult) -> str:
    """What a reader must know of the predicted times; empty if they are simply there."""
    predictions = result.predictions
    if not result.panel.series or not predictions.no_fit:
        return ""
    if not predictions.by_label:
        return f"Measured against predicted: not possible here, {predictions.no_fit}."
    if predictions.left_out:
        return f"No prediction for {joined(list(predictions.left_out))}: {predictions.no_fit}."
    return f"No alpha and beta from send/recv, {predictions.no_fit}; the predicted times are the program's own."


def _machines(records: Records) -> list[Machine]:
    return list({run.machine.fingerprint: run.machine for run in records.runs}.values())


def _facts(records: Records) -> list[Fact]:
    runs, rows = records.runs, records.rows
    sizes = [row.bytes for row in rows if row.bytes > 0]
    programs = joined(sorted({run.program for run in runs}))
    ranks = joined([str(n) for n in sorted({row.ranks for row in rows})])
    over = joined(sorted({f"{row.transport} ({row.run.rank_kind})" for row in rows}))
    spans = f"{bytes_text(min(sizes))} to {bytes_text(max(sizes))}" if sizes else "0 B"
    samples = sum(len(row.samples_us) for row in rows)
    return [
        Fact("Machine", "; ".join(machine_text(machine) for machine in _machines(records))),
        Fact("What was run", f"{programs}: {ranks} ranks over {over}, {spans}"),
        Fact("Rows", f"{len(rows):,} rows, {samples:,} timed calls; {_verified(rows)}"),
        Fact("Basis", joined([f"{number:,} rows {basis}" for basis, number in Counter(r.basis for r in rows).items()])),
        Fact("Build", joined(list(dict.fromkeys(_build(run) for run in runs)))),
        Fact("Started", _started(runs)),
    ]


def _verified(rows: Sequence[Row]) -> str:
    verified = sum(row.ok and row.wrong is not None for row in rows)
    return "all verified" if verified == len(rows) else f"{verified:,} verified"


def _build(run: Run) -> str:
    return ", ".join(part for part in (run.build.short_revision, run.build.compiler, run.build.type) if part)


def _started(runs: Sequence[Run]) -> str:
    times = sorted(run.started for run in runs)
    return times[0] if times[0] == times[-1] else f"{times[0]} to {times[-1]}"


def _machine(machine: Machine) -> list[Fact]:
    caches = machine.caches or {}
    sizes = [f"{name.split('_')[0].upper()} {bytes_text(size)}" for name, size in caches.items() if size]
    facts = [("CPU", machine.cpu), ("Cores", str(machine.cores)), ("Hosts", str(machine.hosts)),
             ("Memory", machine.memory_bytes and bytes_text(machine.memory_bytes, 3)), ("Caches", ", ".join(sizes)),
             ("Clock", machine.mhz and f"{machine.mhz:.0f} MHz"), ("GPUs", ", ".join(machine.gpus) or "none"),
             ("Kernel", machine.kernel), ("Fingerprint", machine.fingerprint)]
    return [Fact(name, str(text or "unknown")) for name, text in facts]


def _runs(records: Records) -> list[RunView]:
    rows = Counter(row.run.run for row in records.rows)
    return [RunView(run, " ".join(run.command), rows[run.run],
                    ", ".join(f"{name}: {version}" for name, version in run.libraries.items())) for run in records.runs]


def _bad(row: Row) -> BadRow:
    place = "in place" if row.in_place else "out of place"
    what = (f"{collective_name(row.collective)} {row.algorithm}, {counted(row.ranks, 'rank')} over {row.transport}, "
            f"{bytes_text(row.bytes)}, {row.dtype} {row.op}, {place}, {row.basis}")
    wrong: Optional[str] = f"{counted(row.wrong, 'element')} differ" if row.wrong else None
    return BadRow(row.status, what, "; ".join(part for part in (wrong, row.error) if part) or "no reason recorded")


def section_title(view: PanelView) -> str:
    return headline(view.result)
