"""GPU kernels by their counts (`kernel_count` records): what a kernel issues per element, and the share of the memory's bandwidth
that this allows. Nothing here was timed."""
from dataclasses import dataclass
from typing import Iterable, Optional

from reports.analysis.groups import by
from reports.records import KernelCount, Records
from reports.units import counted, joined, short

THREADS_A_CLOCK = 128  # thread instructions that a multiprocessor issues: 4 schedulers of a warp each
SPECIAL = 8  # one instruction in so many can use the special function units: they take 16 threads per clock
FEW = 1 << 14  # elements; in smaller cases what threads do once outweighs their loops
GOAL = 1.3  # times the allowed instructions; docs/gpu.md


@dataclass(frozen=True)
class Gpu:
    name: str
    multiprocessors: int
    clock_hz: float
    memory_bytes_a_s: float

    @property
    def allowed_per_byte(self) -> float:
        """Thread instructions that can be issued while memory moves a byte."""
        return self.multiprocessors * THREADS_A_CLOCK * self.clock_hz / self.memory_bytes_a_s


H100, H200 = Gpu("H100", 132, 1.755e9, 3.35e12), Gpu("H200", 132, 1.755e9, 4.8e12)  # SXM; NVIDIA's data sheets
GPUS = (H100, H200)


@dataclass(frozen=True)
class CountedCase:
    """All entries that a kernel launches in a case."""

    entries: tuple[KernelCount, ...]

    @property
    def first(self) -> KernelCount:
        return self.entries[0]

    @property
    def label(self) -> str:
        return f"{self.first.kernel} {self.first.dtype}" + (f" ({self.first.choice})" if self.first.choice else "")

    @property
    def bytes_per_element(self) -> float:
        return self.first.bytes / self.first.elems

    @property
    def ptx(self) -> float:
        """PTX instructions per element."""
        return sum(sum(entry.instructions.values()) for entry in self.entries) / self.first.elems

    @property
    def sass(self) -> Optional[float]:
        """Machine instructions per element; those of the special function units count for as many as could be issued instead."""
        if any(entry.sass is None for entry in self.entries):
            return None
        return sum(max(entry.sass.instructions, SPECIAL * entry.sass.special) for entry in self.entries) / self.first.elems

    @property
    def is_memory_bound(self) -> bool:
        """By its declared work: no tensor cores, and fewer FLOPs than multiply-adds fit beside its bytes."""
        flops = 2 * H100.allowed_per_byte * self.first.bytes
        return self.first.flops < flops and not any(entry.multiply_adds for entry in self.entries)

    @property
    def is_judged(self) -> bool:
        return self.is_memory_bound and self.first.elems >= FEW and self.sass is not None

    def allowed(self, gpu: Gpu) -> float:
        """Thread instructions per element that take no longer than the declared bytes."""
        return gpu.allowed_per_byte * self.bytes_per_element

    def excess(self, gpu: Gpu = H100) -> float:
        """Machine instructions over the allowed ones: above 1, instructions are the limit and not memory."""
        return self.sass / self.allowed(gpu)

    def ceiling(self, gpu: Gpu) -> float:
        """Largest share of the memory's bandwidth that the instructions allow."""
        return min(1.0, 1 / self.excess(gpu))

    def moved(self) -> float:
        """Bytes of all sectors that are accessed, over the declared bytes: re-reads count, as if there were no caches."""
        return 32 * sum(entry.global_sectors for entry in self.entries) / self.first.bytes

    def gaps(self) -> Optional[float]:
        """Bytes of the sectors over the bytes that threads asked for: 1 if accesses coalesce."""
        return _over(32 * sum(entry.global_sectors for entry in self.entries), sum(entry.global_bytes for entry in self.entries))

    def conflicts(self) -> Optional[float]:
        """Turns of the banks of shared memory over those without conflicts."""
        return _over(sum(entry.shared_wavefronts for entry in self.entries), sum(entry.shared_wavefronts_least for entry in self.entries))

    def tensor_excess(self) -> Optional[float]:
        """FLOPs of the tensor cores over the declared ones."""
        return _over(2 * sum(entry.multiply_adds for entry in self.entries), self.first.flops) or None


def _over(number: float, least: float) -> Optional[float]:
    return number / least if least else None


def cases_of(counts: Iterable[KernelCount]) -> list[CountedCase]:
    groups = by(counts, lambda line: (line.run.run, line.kernel, line.dtype, line.shape, line.choice))
    return [CountedCase(tuple(entries)) for entries in groups.values()]


@dataclass(frozen=True)
class CountedKernels:
    """All cases of a report."""

    cases: tuple[CountedCase, ...]
    anchor = "counted"
    basis = "counted"

    @property
    def judged(self) -> list[CountedCase]:
        """Those that memory should limit, the worst first."""
        return sorted((case for case in self.cases if case.is_judged), key=lambda case: -case.excess())

    @property
    def text(self) -> str:
        judged = self.judged
        if not judged:
            return f"{counted(len(self.cases), 'case')} counted; none has machine instructions (nvdisasm was not in PATH) or enough elements to be judged."
        over = [case for case in judged if case.excess() > GOAL]
        names = joined([f"{case.label} ({short(case.excess(), 3)})" for case in over[:6]] + ([f"{len(over) - 6} more"] if len(over) > 6 else []))
        return (f"{len(judged) - len(over)} of {counted(len(judged), 'kernel')} that memory should limit issue at most {GOAL} times the "
                f"instructions that an H100's memory allows" + (f"; more: {names}." if over else "."))


def analyse_counts(records: Records) -> tuple[CountedKernels, ...]:
    cases = cases_of(records.kernel_counts)
    return (CountedKernels(tuple(cases)),) if cases else ()
