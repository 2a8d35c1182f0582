"""Facts of the kernel about processes: liveness, start time and memory; and which ports are free.

A process is identified by pid, start time in clock ticks since boot, and boot id: this combination
is never reused. Reference: proc(5).
"""

import errno
import os
import socket
from pathlib import Path

_PROC = Path("/proc")
_KIB = 1024


def boot_id() -> str:
    """Return the id of the machine's current boot."""
    return (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()


def start_ticks(pid: int) -> int:
    """Return the start of *pid* in clock ticks since boot; 0 when it is dead or a zombie."""
    try:
        text = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return 0
    # The command in parentheses may itself hold spaces and parentheses: fields are counted after
    # the last one.
    fields = text[text.rfind(")") + 2 :].split()
    return 0 if fields[0] in "ZX" else int(fields[19])


def is_same(pid: int, ticks: int) -> bool:
    """Return whether *pid* is still the process that started at *ticks*."""
    return pid > 0 and ticks > 0 and start_ticks(pid) == ticks


def rss_bytes(pid: int) -> int:
    """Return the resident memory of *pid* in bytes; 0 when it is dead."""
    try:
        text = (_PROC / str(pid) / "status").read_text("utf-8", "replace")
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * _KIB
    return 0


def send_signal(pid: int, ticks: int, number: int) -> bool:
    """Signal *pid* if it is still the process that started at *ticks*, else return False."""
    if not is_same(pid, ticks):
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def port_is_free(host: str, port: int) -> bool:
    """Return whether a listener could be opened at *port*.
    A connection in TIME_WAIT does not count as in use.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno in {errno.EADDRINUSE, errno.EACCES}:
                return False
            raise
    return True
