"""Groups kernels into rooflines: what may share a plot. One device of one machine, one build, one basis."""
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Iterable, Optional, Sequence

from reports.analysis.roofline.ceilings import Ceilings, ceilings_of, drift_of
from reports.records import Build, Ceiling, Kernel, Machine, Records
from reports.units import counted


@dataclass(frozen=True)
class Place:
    """Properties that the kernels of a roofline have in common."""

    device: str
    basis: str
    fingerprint: str
    build: Build


@dataclass(frozen=True)
class Way:
    """How a case was timed."""

    threads: int
    cache: str
    timing: str


@dataclass(frozen=True)
class Case:
    """Identity of a timed kernel: the same work in every way."""

    kernel: str
    shape: str
    dtype: str
    implementation: str = ""  # only where a run has timed the case by several in the same way: else it is a choice

    @property
    def label(self) -> str:
        """softmax_bwd bf16; gemm_fwd bf16 (amx)."""
        return f"{self.kernel} {self.dtype}" + (f" ({self.implementation})" if self.implementation else "")

    @property
    def full(self) -> str:
        return f"{self.label}, {self.shape}"


@dataclass(frozen=True)
class Roofline:
    place: Place
    machine: Machine
    kernels: tuple[Kernel, ...]  # all of them: wrong and failed ones too, and those that a later run repeated
    timed: dict[Way, dict[Case, Kernel]]  # correct and with a time; ways in the order in which they are shown
    ceilings: dict[int, Ceilings]  # by threads
    repeated: int  # kernels of which a later run has the same
    drift: Optional[tuple[float, str]]  # the largest ratio between equal ceilings of several runs, and which

    @property
    def ways(self) -> list[Way]:
        return list(self.timed)

    @property
    def main(self) -> Way:
        """The way that findings are about: all threads, cold, as a training step finds its operands."""
        return max(self.ways, key=lambda way: (way.threads, way.cache == "cold", way.timing != "graph"))

    def ceilings_for(self, way: Way) -> Ceilings:
        return self.ceilings.get(way.threads, Ceilings(way.threads, ()))


def way_of(kernel: Kernel) -> Way:
    return Way(kernel.threads, kernel.cache, kernel.timing)


def case_of(kernel: Kernel) -> Case:
    return Case(kernel.kernel, kernel.shape, kernel.dtype)


def _by_several(kernels: Iterable[Kernel]) -> set[Case]:
    """Cases that a run has timed in the same way by more than one implementation."""
    found: dict[tuple, set[Optional[str]]] = defaultdict(set)
    for kernel in kernels:
        found[(case_of(kernel), way_of(kernel), kernel.run.run)].add(kernel.implementation)
    return {case for (case, _, _), names in found.items() if len(names) > 1}


_TIMING = {"events": "CUDA events", "graph": "CUDA graph"}


def way_text(way: Way, device: str) -> str:
    """2 threads, cold; of a GPU: cold, CUDA events."""
    parts = [counted(way.threads, "thread")] if device == "cpu" else []
    parts += [way.cache] + ([_TIMING[way.timing]] if way.timing in _TIMING else [])
    return ", ".join(parts)


def device_text(roofline: Roofline) -> str:
    """Name of the place: the processor's where it is known."""
    machine = roofline.machine
    if roofline.place.device == "cpu":
        return f"CPU ({machine.cpu})" if machine.cpu else "CPU"
    return f"GPU ({machine.gpus[0]})" if machine.gpus else "GPU"


def rooflines_of(records: Records) -> list[Roofline]:
    kernels: dict[Place, list[Kernel]] = defaultdict(list)
    ceilings: dict[Place, list[Ceiling]] = defaultdict(list)
    for kernel in records.kernels:
        kernels[_place_of(kernel)].append(kernel)
    for ceiling in records.ceilings:
        ceilings[_place_of(ceiling)].append(ceiling)
    places = sorted(dict.fromkeys([*kernels, *ceilings]), key=_order)
    return [_roofline(place, kernels[place], ceilings[place]) for place in places]


def _place_of(line) -> Place:
    return Place(line.device, line.run.basis, line.run.machine.fingerprint, line.run.build)


def _order(place: Place) -> tuple:
    basis = ("measured", "emulated", "simulated").index(place.basis)
    return basis, place.device != "cpu", place.device, place.fingerprint, str(place.build)


def _roofline(place: Place, kernels: list[Kernel], ceilings: list[Ceiling]) -> Roofline:
    machine = (kernels or ceilings)[0].run.machine
    right = [kernel for kernel in kernels if kernel.ok and kernel.median_us and (kernel.copies or 1) == 1]
    timed = _latest(right)
    repeated = len(right) - sum(len(cases) for cases in timed.values())
    return Roofline(place, machine, tuple(kernels), timed, ceilings_of(ceilings), repeated,
                    drift_of(ceilings))


def _latest(kernels: Sequence[Kernel]) -> dict[Way, dict[Case, Kernel]]:
    """Keeps of equal kernels of several runs that of the latest run, as each has the ceilings of its own run."""
    timed: dict[Way, dict[Case, Kernel]] = defaultdict(dict)
    apart = _by_several(kernels)
    for kernel in sorted(kernels, key=lambda one: one.run.started):
        case = case_of(kernel)
        if case in apart:
            case = replace(case, implementation=kernel.implementation or "")
        timed[way_of(kernel)][case] = kernel
    order = sorted(timed, key=lambda way: (way.cache != "warm", way.threads, way.timing))
    return {way: timed[way] for way in order}
