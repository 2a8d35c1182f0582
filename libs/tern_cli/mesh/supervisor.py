"""The supervisor of one mesh: starts, restarts and stops its processes and bounds their logs.

`ternmq up` starts it as `python -m tern_cli.mesh.supervisor --detach` with the plan as JSON on
stdin.

Law: one thread, no event loop, standard library only. It waits in `sigtimedwait` and costs about 15
MB. Its children die with it (PR_SET_PDEATHSIG).
"""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from tern_cli.mesh.files import FileIdentity, MeshFiles
from tern_cli.mesh.plan import BOOTSTRAP, MeshPlan, ProcessPlan, plan_from_document
from tern_cli.mesh.process_table import boot_id, start_ticks
from tern_cli.mesh.supervision import FINAL_EXITS, KILL_AFTER_S, STABLE_S, restart_delay_s, roles_to_stop

LOG_SIZE_MAX_BYTES = 10 * 1024 * 1024
LOG_CHECK_INTERVAL_S = 2.0
# Interval of checks while stopping; a dying child ends the wait earlier.
STOP_STEP_S = 0.1
_PR_SET_PDEATHSIG = 1
_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(slots=True, kw_only=True)
class Child:
    """State of one process. Owned by the Supervisor."""

    plan: ProcessPlan
    process: subprocess.Popen[bytes] | None = None
    ticks: int = 0
    started_s: float = 0.0
    due_s: float | None = None
    restarts: int = 0
    quick_deaths: int = 0
    exit_code: int | None = None
    told_to_stop: bool = False

    @property
    def state(self) -> str:
        """Return the state of the process.
        It is running, stopping, restarting (waits for its back-off), failed (never restarts) or
        stopped.
        """
        if self.process is not None:
            return "stopping" if self.told_to_stop else "running"
        if self.due_s is not None:
            return "restarting"
        return "failed" if self.exit_code in FINAL_EXITS else "stopped"


class Supervisor:
    """Owner of the children and of mesh.json while `run` runs."""

    __slots__ = (
        "_boot_id",
        "_children",
        "_environment",
        "_files",
        "_log_check_s",
        "_plan",
        "_published",
        "_stopping_since_s",
    )

    def __init__(self, plan: MeshPlan) -> None:
        self._plan = plan
        self._files = MeshFiles(plan.data_dir)
        self._children = [Child(plan=process) for process in plan.processes]
        self._environment = child_environment(dict(os.environ))
        self._boot_id = boot_id()
        self._stopping_since_s: float | None = None
        self._log_check_s = 0.0
        self._published: FileIdentity | None = None

    def run(self) -> None:
        """Supervise until SIGTERM or SIGINT, then stop everything and remove mesh.json."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        for child in self._children:
            self._start(child)
        self._publish()
        while self._stopping_since_s is None or any(child.process for child in self._children):
            arrived = signal.sigtimedwait(_SIGNALS, self._idle_s(time.monotonic()))
            now_s = time.monotonic()
            # Signals are compared one by one: after this process was stopped and continued, CPython
            # 3.11 reports a signal that never came (0, or an arbitrary number), and a mesh must not
            # end because its machine slept.
            if arrived and arrived.si_signo in {signal.SIGTERM, signal.SIGINT} and self._stopping_since_s is None:
                self._stopping_since_s = now_s
            if self._step(now_s):
                self._publish()
        self._files.mesh.unlink(missing_ok=True)

    def _step(self, now_s: float) -> bool:
        changed = self._reap(now_s)
        if self._stopping_since_s is None:
            for child in self._children:
                if child.due_s is not None and child.due_s <= now_s:
                    child.restarts += 1
                    self._start(child)
                    changed = True
        else:
            elapsed_s = now_s - self._stopping_since_s
            changed |= self._stop(elapsed_s * KILL_AFTER_S / self._plan.stop_within_s)
        if now_s >= self._log_check_s:
            self._log_check_s = now_s + LOG_CHECK_INTERVAL_S
            for name in (*(child.plan.name for child in self._children), "supervisor"):
                bound_log(self._files, name)
            # Another program has removed or damaged mesh.json: without it `down` cannot find the
            # supervisor.
            changed |= self._files.mesh_identity() != self._published
        return changed

    def _idle_s(self, now_s: float) -> float:
        if self._stopping_since_s is not None:
            return STOP_STEP_S
        due = [child.due_s for child in self._children if child.due_s is not None]
        return max(0.0, min([self._log_check_s, *due]) - now_s)

    def _start(self, child: Child) -> None:
        """Start *child* and append its output to its log.
        --bootstrap is left out once the group is born.
        """
        born = self._files.is_born()
        argv = [word for word in child.plan.argv if not (born and word == BOOTSTRAP)]
        supervisor = os.getpid()
        with self._files.log(child.plan.name).open("ab") as log:
            child.process = subprocess.Popen(  # noqa: S603 - the plan's own command
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                process_group=0,
                preexec_fn=lambda: _in_child(supervisor),  # noqa: PLW1509 - the supervisor has one thread
            )
        child.ticks = start_ticks(child.process.pid)
        child.started_s = time.monotonic()
        child.due_s = None

    def _reap(self, now_s: float) -> bool:
        changed = False
        for child in self._children:
            if child.process is None or child.process.poll() is None:
                continue
            exit_code = child.process.returncode
            uptime_s = now_s - child.started_s
            child.process, child.exit_code, changed = None, exit_code, True
            if self._stopping_since_s is not None:
                continue
            delay_s = restart_delay_s(exit_code, uptime_s, child.quick_deaths)
            child.quick_deaths = 0 if uptime_s >= STABLE_S else child.quick_deaths + 1
            child.due_s = None if delay_s is None else now_s + delay_s
            what = FINAL_EXITS.get(exit_code, f"restart in {delay_s} s")
            _say(f"{child.plan.name} ended with {exit_code} after {uptime_s:.1f} s: {what}")
        return changed

    def _stop(self, elapsed_s: float) -> bool:
        alive = [child for child in self._children if child.process]
        to_stop = roles_to_stop(elapsed_s, {child.plan.role for child in alive})
        changed = False
        for child in self._children:
            child.due_s = None
            if child.process is None:
                continue
            if elapsed_s >= KILL_AFTER_S:
                child.process.kill()
            elif child.plan.role in to_stop and not child.told_to_stop:
                child.told_to_stop = changed = True
                child.process.terminate()
        return changed

    def _publish(self) -> None:
        """Write mesh.json.
        On a full disk the old one stays: the processes matter more than their list.
        """
        with contextlib.suppress(OSError):
            self._published = self._write_mesh()

    def _write_mesh(self) -> FileIdentity:
        return self._files.write_mesh(
            {
                "version": 1,
                "cluster": self._plan.cluster,
                "data_dir": self._plan.data_dir,
                "boot_id": self._boot_id,
                "supervisor": {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid())},
                "stopping": self._stopping_since_s is not None,
                "proxies": self._plan.endpoints("proxy"),
                "namesrvs": self._plan.endpoints("namesrv"),
                "processes": [_row(child) for child in self._children],
            }
        )


def _row(child: Child) -> dict[str, Any]:
    return {
        "name": child.plan.name,
        "role": child.plan.role,
        "pid": child.process.pid if child.process else 0,
        "start_ticks": child.ticks if child.process else 0,
        "ports": dict(child.plan.ports),
        "url": child.plan.url,
        "state": child.state,
        "restarts": child.restarts,
        "exit_code": child.exit_code,
        "reason": FINAL_EXITS.get(child.exit_code or 0, ""),
    }


def child_environment(environment: dict[str, str]) -> dict[str, str]:
    """Return the environment of every process of a mesh.
    Without these limits, numpy's thread pools and glibc's arenas would cost more memory than the
    mesh.
    """
    environment = {**environment, "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2", "PYTHONUNBUFFERED": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def bound_log(files: MeshFiles, name: str, size_max_bytes: int = LOG_SIZE_MAX_BYTES) -> None:
    """Bound a log to its maximum size and keep one older log.
    The process keeps its descriptor, which is open for appending: the file is copied and truncated.
    """
    path = files.log(name)
    try:
        if path.stat().st_size <= size_max_bytes:
            return
    except FileNotFoundError:
        return
    shutil.copyfile(path, path.with_suffix(".log.1"))
    os.truncate(path, 0)


def _in_child(supervisor: int) -> None:
    """Prepare the child between fork and exec: tie its life to the supervisor and unblock signals.
    The supervisor may have died just before; then the child exits at once.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != supervisor:
        os._exit(75)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # the log's disk is full: continue without the line
        print(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text}", flush=True)


def main(argv: list[str]) -> None:
    """Read the plan from stdin and supervise.
    With --detach the process is orphaned: init reaps it.
    """
    plan = plan_from_document(json.load(sys.stdin))
    if "--detach" in argv and os.fork():
        os._exit(0)
    Supervisor(plan).run()


if __name__ == "__main__":
    main(sys.argv[1:])
