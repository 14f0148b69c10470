"""The words on a figure: a title, a line on what was run, a badge on what was not measured. The title says what is drawn, or what
no sentence of the page says: a finding is said once."""
from statistics import median

from reports.analysis.panels import Setting
from reports.analysis.results import PanelResult, link_text
from reports.analysis.words import sentence
from reports.units import (bytes_text, collective_name, counted, joined, rate_text, short, time_text, times_text,
                           unbroken)

_SHOWS = {
    "relative": "grey strip: within 5 % of the fastest",
    "latency": "median, band p5 to p95",
    "busbw": "at the median, band p5 to p95",
    "predicted": "grey strip: within 25 %",
    "percentiles": "over the median",
}


def badge(setting: Setting) -> str:
    if setting.basis == "measured":
        return ""
    where = f" on {setting.devices_of}" if setting.devices_of else link_text(setting.link)
    return f"{setting.basis.upper()}{where}: not a time of this machine's own"


def subtitle(kind: str, result: PanelResult) -> str:
    panel, setting = result.panel, result.panel.setting
    transports = joined(sorted({series.variant.transport for series in panel.series}))
    op = "" if setting.op in ("none", "") else f" {setting.op}"
    parts = [collective_name(setting.collective), counted(setting.ranks, "rank"), f"{setting.dtype}{op}", transports,
             *filter(None, [panel.gpus]), "in place" if panel.in_place else "out of place", _SHOWS[kind]]
    return "  ·  ".join(parts)


def title_of(kind: str, result: PanelResult) -> str:
    return unbroken(sentence(_TITLES[kind](result)).rstrip("."))


def _relative(result: PanelResult) -> str:
    return "Time of each algorithm over the fastest one's, by message size"


def _latency(result: PanelResult) -> str:
    if result.duels:
        return "Time of a call by message size"
    size = result.panel.sizes[0]
    best = min((point.time_us, one.label) for one in result.panel.series if (point := one.at(size)))
    return f"{best[1]} takes {time_text(best[0])} at {bytes_text(size)}" + _of_all(result, "the least")


def _busbw(result: PanelResult) -> str:
    rate, label, size = max((point.busbw_gbps(point.time_us), one.label, point.bytes)
                            for one in result.panel.series for point in one.points)
    return f"{label} reaches {rate_text(rate)} at {bytes_text(size)}" + _of_all(result, "the most")


def _of_all(result: PanelResult, rank: str) -> str:
    number = len(result.panel.series)
    return f", {rank} of {number} algorithms" if number > 1 else ""


def _predicted(result: PanelResult) -> str:
    known = result.predictions.by_label
    ratios = [ratio for prediction in known.values() for ratio in prediction.ratios]
    within = 100 * sum(0.8 <= ratio <= 1.25 for ratio in ratios) // len(ratios)
    off = median(abs(ratio - 1) for ratio in ratios)
    side = "" if off < 0.05 else "; most are longer" if median(ratios) > 1 else "; most are shorter"
    return (f"Half of the measured times lie within {short(100 * off, 2)} % of the prediction, "
            f"{'all' if within == 100 else f'{within} %'} within 25 %{side}")


def _percentiles(result: PanelResult) -> str:
    worst = max((point.p99 / point.time_us, one.label, point.bytes) for one in result.panel.series
                for point in one.points)
    return f"p99 is up to {times_text(worst[0])} the median ({worst[1]} at {bytes_text(worst[2])})"


_TITLES = {"relative": _relative, "latency": _latency, "busbw": _busbw, "predicted": _predicted,
           "percentiles": _percentiles}
