"""First page of a report with several pages: the finding of each, in a sentence and a figure."""
from collections import Counter
from dataclasses import dataclass
from typing import Mapping, NamedTuple, Optional, Sequence

from reports.analysis.findings import Finding
from reports.analysis.report import Report
from reports.analysis.training.runs import chart_stem, line_name, line_text, parts_text, run_name, telling, titled
from reports.html.run_view import Fact, machine_views, MachineView, run_facts, run_views, RunView
from reports.plots.figures import FigureFile
from reports.records import Records, Scaling, Training
from reports.units import counted, joined

MOST = 3  # findings of a page


class _Subject(NamedTuple):
    title: str
    question: str
    figure: str  # the kind of figure that answers it, if there is one
    lead: str  # first sentence of its page
    bad_heading: str = "Wrong rows"
    template: str = "groups.html"


SUBJECTS = {
    "claims": _Subject(
        "Claims", "Which claims of surveys hold, and under which condition?", "lines",
        "What surveys of distributed training claim, and what counting, simulation, emulation and measurement say of it. Bases are never mixed.",
        template="claims.html"),
    "collectives": _Subject(
        "Collectives", "Which algorithm is fastest at which size?", "relative",
        "Ring or tree, at which size, and why.", "Wrong and failed rows", template="collectives.html"),
    "kernels": _Subject(
        "Kernels", "How far is each kernel from what this machine can do?", "roofline",
        "How far is each kernel from what this machine can do, and what holds it back?", "Wrong and failed kernels", template="kernels.html"),
    "buckets": _Subject(
        "Gradient buckets", "How large should buckets be, so that their reduction hides behind the backward?", "lines",
        "How large should buckets of gradients be, so that their reduction hides behind the backward?"),
    "sharding": _Subject(
        "ZeRO", "What does each stage save of a rank's memory?", "bars",
        "What does sharing out parameters, gradients and optimizer state save, and what does it send?"),
    "layers": _Subject(
        "Tensor-parallel layers", "What does their communication cost, and how much of it hides behind products?", "parts",
        "What do tensor-parallel layers cost, and how much of their communication can run beside products?"),
    "context": _Subject(
        "Long sequences", "How do ranks share a sequence, at what cost in time and memory?", "lines",
        "How do ranks share the attention of a long sequence: time and memory by length, bytes, load, and what kernels hide."),
    "experts": _Subject(
        "Mixtures of experts", "Where does their time go, and what does an uneven router cost?", "parts",
        "Where does the time of a mixture of experts go, what does an uneven router cost, and what is dropped?"),
    "schedules": _Subject(
        "Pipeline schedules", "Which order of forward and backward wastes least time, at what memory?", "tradeoff",
        "Which order of forward and backward wastes least time, and what memory it takes.", "Failed steps", template="schedules.html"),
    "simulations": _Subject(
        "Simulated steps", "What would a step take on a cluster, in which layout?", "parts",
        "What a training step would take on a machine, in which layout, and whether it fits. All of it is simulated.", "Failed simulations"),
    "studies": _Subject(
        "Studies", "How far does it scale, which way wins, and what should one buy?", "map",
        "How far does a layout scale, which layout is fastest, what memory and order of ranks cost, and which figure of a machine matters."),
    "training": _Subject(
        "Training", "Does it learn, how fast, and where does the time of a step go?", "parts",
        "Does it learn, how fast, where does the time of a step go, and what fills the memory?", "Failed runs"),
    "scaling": _Subject(
        "Scaling", "How many tokens per second do more ranks give, and what eats the rest?", "curve",
        "How well do layouts scale, what eats the rest, and do the pieces of a step explain the step?", "Failed layouts"),
    "gate": _Subject(
        "Gate", "Did the change make anything slower?", "times",
        "Did the change make anything slower?", ""),
}


@dataclass(frozen=True)
class Card:
    subject: str
    title: str
    question: str
    file: str
    findings: Sequence[Finding]
    errors: Sequence[str]
    figure: Optional[FigureFile]


@dataclass(frozen=True)
class Overview:
    facts: Sequence[Fact]
    cards: Sequence[Card]
    runs: Sequence[RunView]
    machines: Sequence[MachineView]
    files: Sequence[str]


def overview_of(records: Records, views: Mapping[str, object], figures: Mapping[str, Sequence[FigureFile]],
                files: Sequence[str]) -> Overview:
    """`views` and `figures` are those of the other pages, by subject."""
    runs = run_views(records)
    basis = Counter(run.basis for run in runs)
    facts = [Fact("What was run", joined(sorted({run.program for run in records.runs}))),
             Fact("Basis", joined([f"{counted(number, 'run')} {name}" for name, number in basis.items()]))]
    cards = [_card(subject, view, figures[subject]) for subject, view in views.items()]
    return Overview(run_facts(records, facts), cards, runs, machine_views(records), files)


def _card(subject: str, view, figures: Sequence[FigureFile]) -> Card:
    told = SUBJECTS[subject]
    own = [file for finding in view.findings[:MOST] for file in figures if _is_of(file, finding)]
    chosen = next((file for file in [*own, *figures] if file.kind == told.figure), next(iter([*own, *figures]), None))
    return Card(subject, told.title, told.question, f"{subject}.html", view.findings[:MOST],
                [note.text for note in view.notes if note.level == "error"], chosen)


def _is_of(file: FigureFile, finding: Finding) -> bool:
    """True if the figure shows what the finding is about: its name begins with the section's, or with a panel's number."""
    section, _, number = finding.anchor.partition("-")
    return file.stem.startswith(f"{number.zfill(2)}-" if section == "panel" else f"{finding.anchor}-")


# ---- One training step in a few sentences and a chart, with which the first page opens if there is one

SLOWER = 1.02  # smaller slowdowns are not mentioned


@dataclass(frozen=True)
class Story:
    sentences: Sequence[str]
    figures: Sequence[FigureFile]


def story_of(report: Report, drawn: Sequence[FigureFile] = ()) -> Optional[Story]:
    """Sentences and chart of one step; None if no record has such a step. `drawn` has the figures of the scaling page."""
    training = report.trainings[0].fastest if report.trainings else None
    scaling = telling(report.scalings, training.layout.text if training else "")
    sentences = [*_scaling_sentences(scaling), *_training_sentences(training, bool(scaling))]  # first, of the run that is drawn
    if not sentences:
        return None
    stem = scaling and chart_stem(report.scalings, scaling)
    return Story(sentences, [file for file in drawn if file.stem == stem])


def _training_sentences(one: Optional[Training], is_another: bool) -> list[str]:
    if one is None:
        return []
    return [f"{'Trained in another run: ' if is_another else ''}{titled(one.model)} ({one.model.parameters:,} parameters) on {one.data}, "
            f"{run_name(one)}: {parts_text(one.parts_ms)} of the step."]


def _scaling_sentences(line: Optional[Scaling]) -> list[str]:
    if line is None:
        return []
    parts = (f"{titled(line.model)} ({line.model.parameters:,} parameters), {line_name(line)}: "
             f"{parts_text(line.step('measured').parts_ms)} of the step.")
    return [text for text in (parts, line_text(line), _slowdown_text(line)) if text]


def _slowdown_text(line: Scaling) -> str:
    """Sentence such as: Contention, measured in pairs: a backward kernel beside ... takes 1.1 times as long."""
    slower = sorted((one for one in line.slowdowns if one.factor > SLOWER), key=lambda one: -one.factor)[:MOST]
    told = joined([f"{_WORDS.get(one.of, one.of)} beside {one.beside} takes {one.factor:.3g} times as long"
                   for one in slower])
    return f"Contention, measured in pairs: {told}." if told else ""


_WORDS = {"F": "a forward kernel", "B": "a backward kernel", "STEP": "the optimizer", "RECOMPUTE": "a recomputation",
          "reduce collective": "a reduction of gradients", "gather collective": "a gather of weights"}
