"""Records of the gate in a made-up world: pairs whose centre and interval are as they were asked for."""
from dataclasses import dataclass, field
from typing import Any, Optional

from reports.tests.world import World

BASE, HEAD = "0123456789abcdef" * 2 + "01234567", "fedcba9876543210" * 2 + "fedcba98"


@dataclass
class GateWorld:
    run_name: str = "gate-1"
    threshold: float = 0.02
    notes: list[str] = field(default_factory=list)

    def run(self, **fields: Any) -> dict[str, Any]:
        gate = {"mode": "ab", "base": {"name": "main", "revision": BASE, "source": "0123456789ab"},
                "head": {"name": "my-branch", "revision": HEAD, "source": "fedcba987654"}, "threshold": self.threshold,
                "confidence": 0.9, "seconds": 31.5, "notes": self.notes}
        own = {"program": "gate.py", "command": ["ci/gate.py", "ab", "--base", "main"], "libraries": {"python": "3.11.2"},
               "build": {"compiler": None, "flags": None, "type": None}, "git": {"revision": HEAD, "dirty": None},
               "rank_kind": "processes", "seed": None, "gate": gate}
        return World(ranks=1, run_name=self.run_name, run_fields={**own, **fields}).run()

    def case(self, name: str, verdict: str = "same", ratio: Optional[float] = 1.0, half: float = 0.01,
             **fields: Any) -> dict[str, Any]:
        """A case of 12.5 us before, with pairs at the bounds and the centre of the ratio."""
        known = ratio is not None
        low, high = (ratio - half * ratio, ratio + half * ratio) if known else (None, None)
        record = {"record": "verdict", "run": self.run_name, "case": name, "channel": "time", "verdict": verdict, "unit": "us",
                  "base": 12.5 if known or verdict == "gone" else None, "head": 12.5 * ratio if known else None, "ratio": ratio,
                  "low": low, "high": high, "why": "12 pairs" if known else "", "pairs": 12 if known else 0,
                  "ratios": [low, ratio, high] if known else [], "seconds": 0.8 if known else 0.0}
        return {**record, **fields}

    def count(self, name: str, before: float, after: float, unit: str = "bytes") -> dict[str, Any]:
        ratio = after / before if before else None
        verdict = "slower" if after > before else "faster" if after < before else "same"
        return self.case(name, verdict, ratio, channel="exact", unit=unit, base=before, head=after, low=None, high=None,
                         ratios=[], pairs=0, why="", seconds=0.0)

    def history(self, name: str, values: list[float], ats: list[int], recent: bool = True, **fields: Any) -> dict[str, Any]:
        """Times with changes before the points `ats`, each of the levels beside it."""
        points = [{"time": f"2026-03-{1 + i % 28:02d}T10:00:00Z", "revision": f"{i:040x}", "source": f"r{i}.jsonl", "value": value}
                  for i, value in enumerate(values)]
        changes = []
        for at in ats:
            ratio = values[at] / values[at - 1]
            changes.append({"at": at, "blame": f"{at - 1:012x}..{at:012x}", "before": values[at - 1], "after": values[at],
                            "worse": ratio > 1, "ratio": ratio, "low": 0.98 * ratio, "high": 1.02 * ratio, "p": 0.001,
                            "recent": recent and at == ats[-1]})
        record = {"record": "history", "run": self.run_name, "case": name, "channel": "stored", "unit": "us", "better": "lower",
                  "why": "", "points": points, "changes": changes}
        return {**record, **fields}
