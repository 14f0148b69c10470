"""Kernels under the measured ceilings of their device."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Callable, Iterable, Optional, Sequence

from reports.analysis.groups import basis_order, by, Group, latest, listed, Places
from reports.records import Build, Ceiling, Kernel, Records
from reports.units import counted, flops_text, joined, rate_text, short, time_text


# ---- The ceilings for one number of threads, as roofs: ranges of rates at one level of memory or dtype

LEVELS = {"l1": "L1", "l2": "L2", "l3": "L3", "memory": "memory"}
UNITS = {"gbps": "GB/s", "gflops": "GFLOP/s", "us": "µs"}
ODD = 0.9  # share of another ceiling that should be the lower one
EXACT = 0.005  # a kernel's ceiling is recognised among the run's ceilings within this


@dataclass(frozen=True)
class Roof:
    """Range from the lowest to the highest rate of the ways of access (copy, read, triad; GB/s) or of computing (fma, gemm; GFLOP/s)."""

    name: str  # "L2", "memory"; "f32", "bf16"
    low: float
    high: float


@dataclass(frozen=True)
class Ceilings:
    threads: int
    all: tuple[Ceiling, ...]

    @property
    def memory(self) -> list[Roof]:
        """Nearest level first; values in GB/s."""
        roofs = _roofs((LEVELS.get(c.level or "", c.level or "?"), c.value) for c in self.all if c.unit == "gbps")
        order = list(LEVELS.values())
        return sorted(roofs, key=lambda roof: order.index(roof.name) if roof.name in order else len(order))

    @property
    def compute(self) -> list[Roof]:
        """Highest first; values in GFLOP/s."""
        roofs = _roofs((c.dtype or "?", c.value) for c in self.all if c.unit == "gflops")
        return sorted(roofs, key=lambda roof: -roof.high)

    @property
    def launch_us(self) -> Optional[float]:
        return next((c.value for c in self.all if c.name == "launch"), None)

    def value(self, name: str, where: str) -> Optional[float]:
        """Value of a ceiling: of "copy" in "memory", of "fma" in "bf16"."""
        return next((c.value for c in self.all if c.name == name and where in (c.level, c.dtype)), None)


def _roofs(values: Iterable[tuple[str, float]]) -> list[Roof]:
    by_name = by((value for value in values if value[1] > 0), lambda pair: pair[0], lambda pair: pair[1])
    return [Roof(name, min(found), max(found)) for name, found in by_name.items()]


def ceilings_of(found: Iterable[Ceiling]) -> dict[int, Ceilings]:
    """Ceilings by number of threads; of equal ceilings of several runs, the latest."""
    groups = latest(sorted(found, key=lambda ceiling: ceiling.run.started), lambda ceiling: ceiling.threads, lambda ceiling: (ceiling.name, ceiling.level, ceiling.dtype))
    return {threads: Ceilings(threads, tuple(groups[threads].values())) for threads in sorted(groups)}


def drift_of(found: Iterable[Ceiling]) -> Optional[tuple[float, str]]:
    """The largest ratio between equal ceilings of several runs, and the ceiling's name."""
    values = by((ceiling for ceiling in found if ceiling.value > 0), lambda ceiling: (ceiling.name, ceiling.level, ceiling.dtype, ceiling.threads), lambda ceiling: ceiling.value)
    ratios = [(max(same) / min(same), key) for key, same in values.items() if len(same) > 1]
    if not ratios:
        return None
    ratio, (name, level, dtype, threads) = max(ratios, key=lambda pair: pair[0])
    where = LEVELS.get(level or "", dtype or "")
    return ratio, f"{where} {name}".strip() + f", {counted(threads, 'thread')}"


def odd_ones(found: dict[int, Ceilings]) -> list[tuple[int, str]]:
    """Ceilings that cannot be the machine's, by their threads: lower than with fewer threads, or than at a farther level."""
    near = [ceiling for each in found.values() for ceiling in _slower_near(each)]
    return [*_slower_with_threads(list(found.values())), *near]


def _slower_with_threads(found: list[Ceilings]) -> Iterable[tuple[int, str]]:
    for few, many in zip(found, found[1:]):
        for ceiling in many.all:
            where = ceiling.level or ceiling.dtype
            before = few.value(ceiling.name, where) if where else None
            if before and ceiling.value < ODD * before:
                yield many.threads, (f"{_name(ceiling)} of {many.threads} threads ({short(ceiling.value)}) lower than with {few.threads} "
                                     f"({short(before)} {UNITS[ceiling.unit]})")


def _slower_near(each: Ceilings) -> Iterable[tuple[int, str]]:
    levels = list(LEVELS)
    for ceiling in each.all:
        farther = levels[levels.index(ceiling.level) + 1:] if ceiling.level in levels else []
        for level in farther[:1]:
            beyond = each.value(ceiling.name, level)
            if beyond and ceiling.value < ODD * beyond:
                yield each.threads, (f"{_name(ceiling)} ({short(ceiling.value)}) below {LEVELS[level]} {ceiling.name} ({short(beyond)} "
                                     f"{UNITS[ceiling.unit]}) of {counted(each.threads, 'thread')}")


def _name(ceiling: Ceiling) -> str:
    return f"{LEVELS.get(ceiling.level or '', ceiling.dtype or '')} {ceiling.name}".strip()


def binding_name(kernel: Kernel, found: Iterable[Ceiling]) -> str:
    """Name of the ceiling that binds a kernel: "L2 copy", "bf16 gemm"; "memory" alone if its value is none of its run's."""
    if not kernel.bound or not kernel.ceiling_us:
        return kernel.bound or "–"
    work = {"memory": kernel.bytes, "compute": kernel.flops}.get(kernel.bound)
    if work is None:
        return kernel.bound
    unit = {"memory": "gbps", "compute": "gflops"}[kernel.bound]
    allowed = work / kernel.ceiling_us / 1e3
    for candidate in sorted(found, key=lambda ceiling: ceiling.dtype != kernel.dtype):  # two dtypes may have equal peaks
        same = (candidate.run.run, candidate.device, candidate.threads, candidate.unit) == (kernel.run.run, kernel.device, kernel.threads, unit)
        if same and abs(candidate.value / allowed - 1) <= EXACT:
            where = LEVELS.get(candidate.level or "", candidate.level or "") if unit == "gbps" else candidate.dtype
            return f"{where} {candidate.name}"
    return kernel.bound


def ceilings_text(ceilings: Ceilings) -> str:
    """Sentence such as: bandwidth 210 to 330 GB/s in L1 and 11 to 13 GB/s from memory; arithmetic ...; launch 1.6 µs."""
    parts = []
    if ceilings.memory:
        phrases = [f"{range_text(roof, rate_text)} {_place(roof.name)}" for roof in ceilings.memory]
        parts.append("bandwidth " + joined(phrases))
    if ceilings.compute:
        phrases = [f"{range_text(roof, flops_text)} in {roof.name}" for roof in ceilings.compute]
        parts.append("arithmetic " + joined(phrases))
    if ceilings.launch_us is not None:
        parts.append(f"launch {time_text(ceilings.launch_us)}")
    return "; ".join(parts)


def _place(level: str) -> str:
    return "from memory" if level == "memory" else f"in {level}"


def range_text(roof: Roof, text: Callable[[float], str]) -> str:
    """Text such as "11.2 to 13.1 GB/s"; one number where the two are equal."""
    (low, unit), (high, high_unit) = text(roof.low).split(" "), text(roof.high).split(" ")
    if short(roof.low, 2) == short(roof.high, 2):
        return f"{high} {high_unit}"
    return f"{low} to {high} {unit}" if unit == high_unit else f"{low} {unit} to {high} {high_unit}"


# Groups kernels into rooflines, which share a plot.

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
    implementation: str = ""  # only if a run has timed the case by several in the same way; else it was the run's choice

    @property
    def label(self) -> str:
        """Label such as "softmax_bwd bf16" or "gemm_fwd bf16 (packed)"."""
        return f"{self.kernel} {self.dtype}" + (f" ({self.implementation})" if self.implementation else "")

    @property
    def full(self) -> str:
        return f"{self.label}, {self.shape}"


@dataclass(frozen=True)
class Roofline(Group):
    """One device of one machine, one build, one basis; `lines`: all kernels, including wrong and failed ones, and those that
    a later run repeated."""

    found: tuple[Ceiling, ...] = ()  # ceilings of all runs

    @property
    def first(self) -> Kernel | Ceiling:
        return (self.lines or self.found)[0]

    @property
    def device(self) -> str:
        return self.first.device

    @property
    def name(self) -> str:
        return listed(self._device_name, self.first.run.basis, self.place)

    @property
    def _device_name(self) -> str:
        """Name of the device: the processor's, if it is known."""
        machine = self.first.run.machine
        if self.device == "cpu":
            return f"CPU ({machine.cpu})" if machine.cpu else "CPU"
        return f"GPU ({machine.gpus[0]})" if machine.gpus else "GPU"

    @cached_property
    def timed(self) -> dict[Way, dict[Case, Kernel]]:
        """Kernels that are correct and have a time; ways in the order in which they are shown."""
        return _latest(_right(self.lines))

    @property
    def repeated(self) -> int:
        """Number of kernels that a later run repeated."""
        return len(_right(self.lines)) - sum(map(len, self.timed.values()))

    @cached_property
    def ceilings(self) -> dict[int, Ceilings]:
        """By threads."""
        return ceilings_of(self.found)

    @property
    def latest_ceilings(self) -> list[Ceiling]:
        return [ceiling for each in self.ceilings.values() for ceiling in each.all]

    @property
    def ways(self) -> list[Way]:
        return list(self.timed)

    @property
    def main(self) -> Way:
        """Way of timing that findings describe: all threads, cold, as a training step finds its operands."""
        return max(self.ways, key=lambda way: (way.threads, way.cache == "cold", way.timing != "graph"))

    def ceilings_for(self, way: Way) -> Ceilings:
        return self.ceilings.get(way.threads, Ceilings(way.threads, ()))


def way_of(kernel: Kernel) -> Way:
    return Way(kernel.threads, kernel.cache, kernel.timing)


def case_of(kernel: Kernel) -> Case:
    return Case(kernel.kernel, kernel.shape, kernel.dtype)


def _by_several(kernels: Iterable[Kernel]) -> set[Case]:
    """Cases that a run has timed in the same way by more than one implementation."""
    found = by(kernels, lambda kernel: (case_of(kernel), way_of(kernel), kernel.run.run), lambda kernel: kernel.implementation)
    return {case for (case, _, _), names in found.items() if len(set(names)) > 1}


_TIMING = {"events": "CUDA events", "graph": "CUDA graph"}


def way_text(way: Way, device: str) -> str:
    """Words such as "2 threads, cold", or for a GPU "cold, CUDA events"."""
    return listed(counted(way.threads, "thread") if device == "cpu" else "", way.cache, _TIMING.get(way.timing, ""))


def analyse_kernels(records: Records) -> tuple[Roofline, ...]:
    places = Places(records.runs)
    kernels, ceilings = by(records.kernels, _place_of), by(records.ceilings, _place_of)
    keys = sorted({**kernels, **ceilings}, key=_order)
    return tuple(Roofline(f"roofline-{number}", tuple(kernels.get(key, ())), places.of(*key[2:]), tuple(ceilings.get(key, ())))
                 for number, key in enumerate(keys, start=1))


def _place_of(line: Kernel | Ceiling) -> tuple[str, str, str, Build]:
    return line.device, line.run.basis, line.run.machine.fingerprint, line.run.build


def _order(place: tuple[str, str, str, Build]) -> tuple:
    device, basis, fingerprint, build = place
    return basis_order(basis), device != "cpu", device, fingerprint, str(build)


def _right(kernels: Iterable[Kernel]) -> list[Kernel]:
    return [kernel for kernel in kernels if kernel.ok and kernel.median_us and (kernel.copies or 1) == 1]


def _latest(kernels: Sequence[Kernel]) -> dict[Way, dict[Case, Kernel]]:
    """Keeps the latest of equal kernels of several runs, as each share refers to the ceilings of its own run."""
    apart = _by_several(kernels)

    def named(kernel: Kernel) -> Case:
        case = case_of(kernel)
        return replace(case, implementation=kernel.implementation or "") if case in apart else case
    timed = latest(sorted(kernels, key=lambda kernel: kernel.run.started), way_of, named)
    order = sorted(timed, key=lambda way: (way.cache != "warm", way.threads, way.timing))
    return {way: timed[way] for way in order}


def plotted(cases: dict[Case, Kernel]) -> list[tuple[Case, Kernel]]:
    """Cases with FLOPs and bytes above 0, as logarithmic axes cannot contain 0."""
    return [(case, kernel) for case, kernel in cases.items() if kernel.flops and kernel.bytes]
