"""Limits of a finding, in its own words and place: ranks that share cores, few samples, and programs that ran meanwhile."""
from dataclasses import replace
from typing import Any, Iterable, Optional, Sequence

from reports.units import counted, joined, share_text

FEW_SAMPLES = 10  # with fewer, p5 and p95 are little more than the extremes
DISTURBED = 0.15  # share of the processors' time; the system's own programs have up to a tenth


def samples_of(line: Any) -> Optional[int]:
    """Fewest samples of any time of a line; None if it has none."""
    parts = [line, *(getattr(line, "times", None) or ()), *(getattr(line, "steps", None) or ())]
    counts = [len(found) for part in parts for name in ("samples_us", "samples_ms") if (found := getattr(part, name, None))]
    return min(counts, default=None)


def few_text(lines: Sequence[Any], noun: str = "row") -> str:
    few = [line for line in lines if (samples_of(line) or FEW_SAMPLES) < FEW_SAMPLES]
    return f"{len(few)} of {counted(len(lines), noun)} {'has' if len(few) == 1 else 'have'} fewer than {FEW_SAMPLES} samples." if few else ""


def shares_cores(line: Any) -> bool:
    """True if the line's ranks shared cores. A run may have several numbers of ranks; its own flag is of the largest."""
    known = getattr(line, "oversubscribed", None)
    run, cores = line.run, line.run.machine.cores
    return known if known is not None else run.oversubscribed and (line.ranks == run.ranks or line.ranks > cores)


def crowded_text(lines: Iterable[Any]) -> str:
    """Words such as "More ranks than cores: 4 and 8 ranks on 2 cores."; where ranks have several threads each, of threads."""
    crowded = sorted({(line.run.machine.cores, line.ranks) for line in lines if shares_cores(line)})
    if not crowded:
        return ""
    chosen = [f"{joined([str(ranks) for of, ranks in crowded if of == cores])} ranks on {counted(cores, 'core')}"
            for cores in dict.fromkeys(cores for cores, _ in crowded)]
    what = "ranks" if all(ranks > cores for cores, ranks in crowded) else "threads of ranks"
    return f"More {what} than cores: {joined(chosen)}, so times include waiting for a core."


def caveat_of(lines: Iterable[Any]) -> str:
    """Sentences on what limits a finding from these lines; empty if nothing does. Computed lines have neither cores nor samples."""
    timed = [line for line in lines if getattr(line, "basis", "") in ("measured", "emulated") and getattr(line, "status", "ok") == "ok"]
    return " ".join(text for text in (crowded_text(timed), few_text(timed)) if text)


def disturbed_text(lines: Iterable[Any]) -> str:
    """Words instead of findings from lines that were timed on the processor while other programs used more than DISTURBED of it; empty if
    none was. Such times are consistent, and wrong: what runs at the same time decides which algorithm is fastest."""
    runs = [line.run for line in lines if getattr(line, "basis", "") in ("measured", "emulated")
            and not line.run.gpu and not line.run.gate]
    share = max((run.others_share or 0 for run in runs), default=0)
    if share <= DISTURBED:
        return ""
    return (f"Undecided on this machine: other programs had {share_text(share)} of its processors' time meanwhile; an idle machine would "
            "decide it.")


def limited(finding: Any, lines: Sequence[Any]) -> Any:
    """The finding from these lines with what limits it: its own caveat, else the caveat for the lines; or words that replace a statement
    about times. What was simulated has no limit, whatever else was timed for its page."""
    if finding.badge == "simulated":
        return finding
    if finding.exact != finding.text and (text := disturbed_text(lines)):
        return replace(finding, text=f"{finding.exact} {text}".strip(), why="", caveat="")
    return finding if finding.caveat else replace(finding, caveat=caveat_of(lines))


def findings_of(results: Iterable[Any]) -> list:
    """Findings of results with what limits them."""
    return [limited(finding, result.lines) for result in results for finding in result.findings]
