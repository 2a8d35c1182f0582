"""The cost of processes: CPU time and memory from /proc, by names of a mesh's processes.

Linux only. Reference: proc_pid_stat(5), fields 14 (utime) and 15 (stime), in clock ticks of usually
10 ms.
"""

import os
from collections.abc import Mapping
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_KIB = 1024

Pids = Mapping[str, int]


def cpu_seconds(pids: Pids) -> dict[str, float]:
    """Return the CPU seconds, user and system, of each process since its start."""
    return {name: _cpu_seconds(pid) for name, pid in pids.items()}


def _cpu_seconds(pid: int) -> float:
    # The command's name may contain blanks and brackets, so fields are counted from the last
    # bracket on.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def cpu_us_each(before: Mapping[str, float], after: Mapping[str, float], count: int) -> dict[str, float]:
    """Return microseconds of CPU per message and process between two readings."""
    return {name: round((after[name] - before[name]) * 1e6 / max(1, count), 2) for name in before}


def memory_mb(pids: Pids) -> tuple[float, float]:
    """Return the sums over the processes in MB (10^6 bytes): resident, proportional.

    Resident counts shared pages in each process, proportional counts them once.
    """
    rss = sum(_kib(Path(f"/proc/{pid}/status"), "VmRSS:") for pid in pids.values())
    pss = sum(_kib(Path(f"/proc/{pid}/smaps_rollup"), "Pss:") for pid in pids.values())
    return rss * _KIB / 1e6, pss * _KIB / 1e6


def _kib(path: Path, label: str) -> int:
    return next(int(line.split()[1]) for line in path.read_text().splitlines() if line.startswith(label))
