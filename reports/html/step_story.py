"""One training step in a few sentences and a chart, with which the first page opens if there is one."""
from dataclasses import dataclass
from typing import Optional, Sequence

from reports.analysis.report import Report
from reports.analysis.training.runs import parts_text, run_name, titled
from reports.analysis.training.scaling import chart_stem, line_text, telling
from reports.plots.figures import FigureFile
from reports.records import Scaling, Training
from reports.units import joined

SLOWER = 1.02  # smaller slowdowns are not mentioned
MOST = 3  # pairs


@dataclass(frozen=True)
class Story:
    sentences: Sequence[str]
    figures: Sequence[FigureFile]


def story_of(report: Report, drawn: Sequence[FigureFile] = ()) -> Optional[Story]:
    """Sentences and chart of one step; None if no record has such a step. `drawn` has the figures of the scaling page."""
    training = report.trainings[0].fastest if report.trainings else None
    scaling = telling(report.scalings, training.layout.text if training else "")
    sentences = [*_training_sentences(training), *_scaling_sentences(scaling)]
    if not sentences:
        return None
    stem = scaling and chart_stem(report.scalings, scaling)
    return Story(sentences, [file for file in drawn if file.stem == stem])


def _training_sentences(one: Optional[Training]) -> list[str]:
    if one is None:
        return []
    return [f"{titled(one.model)} ({one.model.parameters:,} parameters) on {one.data}, {run_name(one)}: {parts_text(one.parts_ms)} of the step."]


def _scaling_sentences(line: Optional[Scaling]) -> list[str]:
    return [text for text in (line_text(line), _slowdown_text(line)) if text] if line else []


def _slowdown_text(line: Scaling) -> str:
    """Sentence such as: Contention, measured in pairs: a backward kernel beside ... takes 1.1 times as long."""
    slower = sorted((one for one in line.slowdowns if one.factor > SLOWER), key=lambda one: -one.factor)[:MOST]
    told = joined([f"{_WORDS.get(one.of, one.of)} beside {one.beside} takes {one.factor:.3g} times as long"
                   for one in slower])
    return f"Contention, measured in pairs: {told}." if told else ""


_WORDS = {"F": "a forward kernel", "B": "a backward kernel", "STEP": "the optimizer", "RECOMPUTE": "a recomputation",
          "reduce collective": "a reduction of gradients", "gather collective": "a gather of weights"}
