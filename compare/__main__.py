"""Compares Lockstep with other libraries, or its measurements with its predictions, alternating on this machine:

    python3 -m compare STUDY [flags]      python3 -m compare STUDY --help

Programs that are missing are built; libraries that are not installed are left out and named (ci/install.sh peers test).
"""

from __future__ import annotations

import argparse
import sys

from compare import runner

STUDIES = {
    "collectives": "all-reduce with Open MPI's, MPICH's and Gloo's, on this machine",
    "hosts": "all-reduce with Open MPI's and Gloo's, over hosts of network namespaces",
    "openmpi_rules": "Open MPI's own decision with the rules of `tune --openmpi-rules`",
    "kernels": "CPU kernels with streaming loops, PyTorch, oneDNN, OpenBLAS and libmvec",
    "gemm": "our products of matrices with oneDNN 3: should our own code stay?",
    "experts": "a mixture of experts with PyTorch's",
    "trainer": "mini_train with PyTorch on the CPU, eager and compiled",
    "links": "every algorithm on emulated links with its prediction",
    "steps": "training steps with predictions from a calibrated machine",
    "build_cost": "CPU seconds that building two revisions takes",
    "counts": "what GPU kernels do, counted without a GPU",
    "sass": "instructions of compiled CUDA kernels with the number that memory allows",
}


def main(words: list[str]) -> int:
    listing = "\n".join(f"  {name:<14} {help_text}" for name, help_text in STUDIES.items())
    parser = argparse.ArgumentParser(prog="python3 -m compare", description=f"{__doc__}\nstudies:\n{listing}",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES, metavar="STUDY")
    study = parser.parse_args(words[:1]).study
    return runner.run(study, words[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
