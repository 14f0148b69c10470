"""First page of a report with several pages: the finding of each, in a sentence and a figure."""
from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Optional, Sequence

from reports.analysis.caveats import disturbed_text
from reports.analysis.training.runs import chart_stem, line_name, line_text, line_to_explain, parts_text, run_name, titled
from reports.html.run_view import FrameView, frame_view, run_views
from reports.page import Drawing, Fact
from reports.records import Records, Step, Training
from reports.report import Report
from reports.units import counted, joined

MOST = 3  # findings of a page


@dataclass(frozen=True)
class Overview:
    views: Sequence[Any]  # the other pages
    frame: FrameView
    about = SimpleNamespace(subject="overview", template="overview.html")  # what the frame of all pages reads of a page


def overview_of(records: Records, views: Sequence[Any], files: Sequence[str]) -> Overview:
    basis = Counter(view.of_all("basis") for view in run_views(records))
    facts = [Fact("What was run", joined(sorted({run.program for run in records.runs}))),
             Fact("Basis", joined([f"{counted(number, 'run')} {name}" for name, number in basis.items()]))]
    return Overview(views, frame_view(records, facts, files))


# ---- One training step in a few sentences and a chart, with which the first page opens if there is one

SLOWER = 1.02  # smaller slowdowns are not mentioned


@dataclass(frozen=True)
class Story:
    sentences: Sequence[str]
    figures: Sequence[Drawing]


def story_of(report: Report, drawn: Sequence[Drawing] = ()) -> Optional[Story]:
    """Sentences and chart of one step; None if no record has such a step. `drawn` has the figures of the scaling page."""
    trainings, scalings = report.results("training"), report.results("scaling")
    training = trainings[0].fastest if trainings else None
    scaling = line_to_explain(scalings, training.layout.text if training else "")
    timed = [line for line in (scaling, training) if line]
    disturbed = list(dict.fromkeys(text for line in timed if (text := disturbed_text([line]))))
    sentences = disturbed or [*_scaling_sentences(scaling), *_training_sentences(training, bool(scaling))]  # first, of the run that is drawn
    if not sentences:
        return None
    stem = scaling and chart_stem(scalings, scaling)
    return Story(sentences, [file for file in drawn if file.stem == stem])


def _training_sentences(line: Optional[Training], is_another: bool) -> list[str]:
    if line is None:
        return []
    return [f"{'Trained in another run: ' if is_another else ''}{titled(line.model)} ({line.model.parameters:,} parameters) on {line.data}, "
            f"{run_name(line)}: {parts_text(line.parts_ms)} of the step."]


def _scaling_sentences(line: Optional[Step]) -> list[str]:
    if line is None:
        return []
    parts = (f"{titled(line.model)} ({line.model.parameters:,} parameters), {line_name(line)}: "
             f"{parts_text(line.step('measured').parts_ms)} of the step.")
    return [text for text in (parts, line_text(line), _slowdown_text(line)) if text]


def _slowdown_text(line: Step) -> str:
    """Sentence such as: Contention, measured in pairs: a backward kernel concurrent with ... takes 1.1 times as long."""
    slower = sorted((slowdown for slowdown in line.slowdowns or () if slowdown.factor > SLOWER), key=lambda slowdown: -slowdown.factor)[:MOST]
    text = joined([f"{_WORDS.get(line.of, line.of)} concurrent with {line.beside} takes {line.factor:.3g} times as long"
                   for line in slower])
    return f"Contention, measured in pairs: {text}." if text else ""


_WORDS = {"F": "a forward kernel", "B": "a backward kernel", "STEP": "the optimizer", "RECOMPUTE": "a recomputation",
          "reduce collective": "a reduction of gradients", "gather collective": "a gather of weights"}
