"""What the benchmarks share: the machine's name, times, and peaks of memory."""

import gc
import json
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import torch


def processor() -> str:
    """The processor's name, where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def machine() -> str:
    """Processor, cores, threads and PyTorch's version."""
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    return (
        f"{processor()}, {os.cpu_count()} cores, OMP_NUM_THREADS={threads}, "
        f"PyTorch {torch.__version__}"
    )


def times_ms(work: Callable[[], object], repetitions: int) -> tuple[float, float]:
    """Median CPU and wall time in milliseconds."""
    cpu, wall = [], []
    for _ in range(repetitions):
        start, start_cpu = time.perf_counter(), time.process_time()
        work()
        wall.append(1000 * (time.perf_counter() - start))
        cpu.append(1000 * (time.process_time() - start_cpu))
    return statistics.median(cpu), statistics.median(wall)


def peak_mib(work: Callable[[], object]) -> float:
    """The most that Python, NumPy and spaCy held beyond what was there before, in MiB.

    tracemalloc sees what is taken through Python's allocator; PyTorch's tensors are not.
    """
    gc.collect()
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def tensor_peak_mib(work: Callable[[], object]) -> float:
    """The most that PyTorch's tensors held beyond what was there before, in MiB.

    torch.profiler reports each allocation and release; the scratch space that a library takes
    behind PyTorch's back is not among them.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # the profiler tells of each start and stop
    gc.collect()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        work()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    held = peak = 0
    for event in sorted((e for e in events if e["name"] == "[memory]"), key=lambda e: e["ts"]):
        held += event["args"]["Bytes"]
        peak = max(peak, held)
    return peak / 2**20


def process_peak_mib() -> float:
    """Peak resident memory of this process and, where the system tells it, of its live children.

    Elsewhere than on Linux it is that of this process alone.
    """
    if not Path("/proc/self/status").exists():
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (2**20 if sys.platform == "darwin" else 2**10)
    return sum(_peak_of(pid) for pid in _family(os.getpid())) / 2**10


def _family(pid: int) -> list[int]:
    """A process and all that it started, directly or not."""
    found = [pid]
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [own for child in listing.read_text().split() for own in _family(int(child))]
    return found


def _peak_of(pid: int) -> int:
    """Peak resident memory in KiB; 0 for a process that has just ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


if __name__ == "__main__":
    print(machine())
