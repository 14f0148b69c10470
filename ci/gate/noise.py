"""Other people's work on the machine, for tests: processes that compute or stream memory in bursts of random length."""
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


@contextmanager
def background_noise(processes: int) -> Iterator[None]:
    """So many processes, busy about two thirds of the time, while the body runs."""
    command = [sys.executable, "-c", "from gate.noise import make_noise; make_noise()"]
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(os.path.abspath(__file__)))}
    noisy = [subprocess.Popen(command, env=environment) for _ in range(processes)]
    try:
        yield
    finally:
        for process in noisy:
            process.send_signal(signal.SIGKILL)
            process.wait()


def make_noise() -> None:
    """Bursts of 2 ms to 2 s, half of them arithmetic and half memory, with pauses half as long."""
    words = np.ones(1 << 22)  # 32 MiB
    few = np.ones(1 << 10)
    parent = os.getppid()
    while os.getppid() == parent:  # whoever started it may have been killed
        length = 10 ** random.uniform(-2.7, 0.3)
        array = random.choice([words, few])
        end = time.monotonic() + length
        while time.monotonic() < end:
            array *= 1.0000001
        time.sleep(length * random.uniform(0, 1))
