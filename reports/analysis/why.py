"""Why one family is faster here and the other there: steps and bytes from the plans, alpha and beta from the fit."""
from dataclasses import replace

from reports.analysis.crossover import Comparison, Verdict, compare
from reports.analysis.families import Family
from reports.analysis.panels import Point, Series
from reports.analysis.fit import Prediction, Predictions
from reports.analysis.words import comparison_text
from reports.units import about, bytes_text, counted, rate_text, short, time_text


def why_text(first: Family, second: Family, measured: Comparison, predictions: Predictions) -> str:
    """Sentences, or nothing where the plans do not tell."""
    if not measured.sizes or not _planned(first) or not _planned(second):
        return ""
    return " ".join(text for text in (_counts_text(first, second, measured),
                                      _model_text(first, second, measured, predictions)) if text)


def _planned(family: Family) -> bool:
    return all(point.plan for point in family.best.points)


def _counts_text(first: Family, second: Family, measured: Comparison) -> str:
    small, large = measured.sizes[0], measured.sizes[-1]
    a, b = first.best.at(small), second.best.at(small)
    x, y = first.best.at(large), second.best.at(large)
    return (f"{first.called} needs {counted(a.plan.steps, 'message')} one after another, {second.called} "
            f"{b.plan.steps} (at {bytes_text(small)}); the busiest rank of {first.called} sends {_per_byte(x)} bytes "
            f"for each byte of the message, of {second.called} {_per_byte(y)} (at {bytes_text(large)}).")


def _per_byte(point: Point) -> str:
    return short(point.plan.wire_bytes_max / point.bytes)


def _model_text(first: Family, second: Family, measured: Comparison, predictions: Predictions) -> str:
    known = [predictions.by_label.get(member.label) for member in (*first.members, *second.members)]
    if not all(known) or len({p.played_out for p in known}) > 1:
        return ""
    model = compare(_predicted(first, predictions), _predicted(second, predictions))
    same = model.spans == measured.spans
    said = " just these ranges" if same else ": " + comparison_text(first.called, second.called, model)
    return (f"{_source_text(known[0])}{said}{_crossings_text(measured, model)}."
            f"{_disagreement(first, second, measured, model)}")


def _source_text(prediction: Prediction) -> str:
    if prediction.played_out:
        return "Played out message by message, with the alpha and beta that the program measured, the plans predict"
    fit = prediction.fit
    return f"With {time_text(fit.alpha_us)} a message and {rate_text(fit.gbps)} (fitted to send/recv) that predicts"


def _predicted(family: Family, predictions: Predictions) -> Series:
    """The family's best series with the predicted times of the members that it is made of."""
    points = []
    for size in family.best.sizes:
        member = min((m for m in family.members if m.at(size)), key=lambda m: m.at(size).time_us)
        points.append(predictions.by_label[member.label].model.at(size))
    return replace(family.best, points=tuple(points))


def _crossings_text(measured: Comparison, model: Comparison) -> str:
    if not measured.crossing_bytes or not model.crossing_bytes:
        return ""
    return f" (crossing near {about(model.crossing_bytes)}; measured near {about(measured.crossing_bytes)})"


def _disagreement(first: Family, second: Family, measured: Comparison, model: Comparison) -> str:
    """Says where the model is wrong about the winner: then steps and bytes are not the reason."""
    opposite = {Verdict.FIRST: Verdict.SECOND, Verdict.SECOND: Verdict.FIRST}
    wrong = [i for i, verdict in enumerate(measured.verdicts) if model.verdicts[i] is opposite.get(verdict)]
    if not wrong:
        return ""
    i = wrong[-1]
    name = first.called if measured.verdicts[i] is Verdict.FIRST else second.called
    size = bytes_text(measured.sizes[i])
    sizes = f"at {size}" if len(wrong) == 1 else f"at {len(wrong)} sizes, {size} among them"
    return (f" The measurement says the opposite {sizes}, where {name} is faster: what the model leaves out "
            "(reduction, memory traffic, caches, ranks that share cores) decides there.")
