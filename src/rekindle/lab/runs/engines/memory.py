"""How much memory is left: on the machine, and in the container that we may be in."""

from __future__ import annotations

from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


def available_memory(meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> float:
    """Return the bytes that new processes can take, or infinity where the system does not tell.

    Args:
        meminfo: The machine's memory, as Linux tells it.
        cgroup: The container's limits, version 2.
    """
    return min(_of_machine(meminfo), _of_container(cgroup))


def _of_machine(meminfo: Path) -> float:
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return float("inf")
    found = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(found[0][1]) * 1024 if found else float("inf")


def _of_container(cgroup: Path) -> float:
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        used = int((cgroup / "memory.current").read_text())
        statistics = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return float("inf")
    if limit == "max":
        return float("inf")
    return int(limit) - used + int(statistics.get("inactive_file", 0))  # that cache goes when somebody needs it
