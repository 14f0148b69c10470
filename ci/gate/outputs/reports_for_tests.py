"""Made-up reports for the tests of outputs."""
from gate.model import Change, Channel, HistoryReport, Point, Report, Result, Series, Side, Verdict

BASE, HEAD = "0123456789abcdef" * 2 + "01234567", "fedcba9876543210" * 2 + "fedcba98"
HOSTILE = "line: <script>&\"x\"</script> | a`b``c\\d *e* [f](g) @name \x07\x1b[31m ü"


def timed(case: str, verdict: Verdict, ratio: float = 1.0, half: float = 0.01, **fields: object) -> Result:
    known = {"base": 12.5, "head": 12.5 * ratio, "ratio": ratio, "low": ratio - half, "high": ratio + half, "pairs": 12,
             "ratios": (ratio - half, ratio, ratio + half), "seconds": 0.75, "why": "12 pairs"}
    return Result(case, Channel.TIME, verdict, "us", **{**known, **fields})


def counted(case: str, base: float, head: float, unit: str = "bytes") -> Result:
    verdict = Verdict.SLOWER if head > base else Verdict.FASTER if head < base else Verdict.SAME
    return Result(case, Channel.EXACT, verdict, unit, base=base, head=head, ratio=head / base if base else None)


def report_of(*results: Result, notes: tuple[str, ...] = ()) -> Report:
    return Report("ab", Side("main", BASE, "0123456789ab"), Side("my-branch", HEAD, "fedcba987654"), 0.02, 0.9, results, 31.25, notes)


def mixed() -> Report:
    return report_of(
        timed("kernels: same", Verdict.SAME), timed("kernels: slower", Verdict.SLOWER, 1.051, 0.02, why="confirmed by 12 fresh pairs"),
        timed("kernels: unclear", Verdict.UNDECIDED, 1.018, 0.03, why="not clear after 24 pairs"),
        timed("kernels: faster", Verdict.FASTER, 0.96), Result(HOSTILE, Channel.TIME, Verdict.NEW, "us"),
        Result("kernels: went", Channel.TIME, Verdict.GONE, "us"), counted("plan: bytes", 1_048_576, 1_048_640),
        timed("kernels: early", Verdict.UNDECIDED, 1.0, low=None, high=None, why="the budget was spent"),
        notes=("machines differ | <not> *the same*",))


def history() -> HistoryReport:
    """A recent step of 10 % in one case, an old one in another, a third that is too short."""
    points = tuple(Point(f"2026-03-{i + 1:02d}T10:00:00Z", f"{i:040x}", f"r{i}.jsonl", 10.0 if i < 9 else 11.0) for i in range(14))
    step = Change(9, "000000000008..000000000009", 10.0, 11.0, True, 1.1, 1.08, 1.12, 0.001, True)
    old = Change(9, "000000000008..000000000009", 0.0, 11.0, True, None, None, None, 0.001, False)
    return HistoryReport("records", 10, 0.01, 0.95, 0.02, (
        Series("kernels: recent", Channel.STORED, "us", "lower", points, (step,)),
        Series("plan: old", Channel.EXACT, "bytes", "lower", points, (old,)),
        Series("kernels: short", Channel.STORED, "us", "lower", points[:3], (), "3 points; 8 are needed")), 1.5)
