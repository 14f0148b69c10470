"""Records of kernels to everything that their page says."""
from dataclasses import dataclass

from reports.analysis.findings import Finding
from reports.analysis.roofline.findings import kernel_findings
from reports.analysis.roofline.rooflines import Roofline, device_text, rooflines_of
from reports.records import Records


@dataclass(frozen=True)
class RooflineResult:
    name: str  # "CPU (Xeon ...), measured": tells the rooflines of a page apart
    anchor: str
    roofline: Roofline
    findings: tuple[Finding, ...]


def analyse_kernels(records: Records) -> tuple[RooflineResult, ...]:
    rooflines = rooflines_of(records)
    machines = list(dict.fromkeys(run.machine.fingerprint for run in records.runs))
    builds = list(dict.fromkeys(run.build for run in records.runs))
    results = []
    for number, one in enumerate(rooflines, start=1):
        parts = [device_text(one), one.place.basis]
        if len(machines) > 1:
            parts.append(f"machine {machines.index(one.place.fingerprint) + 1}")
        if len(builds) > 1:
            parts.append(f"build {builds.index(one.place.build) + 1} ({one.place.build.short_revision})")
        name, anchor = ", ".join(parts), f"roofline-{number}"
        results.append(RooflineResult(name, anchor, one, tuple(kernel_findings(name, anchor, one))))
    return tuple(results)
