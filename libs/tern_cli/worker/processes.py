"""The processes of `ternmq worker --processes N`: started, restarted when they die, told to stop.

    running --exit 0--> done          --exit 2--> refused: all are stopped, exit 2
       |----other exit--> restarting: 0.2 s, 0.4 s, ... 5 s; at once after 3 s of life
       '----a file changed (--reload)--> SIGTERM --> started again

Law: one thread, no event loop; it waits in `sigtimedwait`. The first SIGTERM or SIGINT is passed on
as SIGTERM and ends the workers in order, exit 0; the second one at once, exit 128 + its number. The
processes have groups of their own, so that Ctrl-C of a terminal comes once. They stop when this
process dies (PR_SET_PDEATHSIG).
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import typer

from tern_cli.mesh.supervision import STABLE_S, restart_delay_s
from tern_cli.worker.source_changes import PERIOD_S, SourceChanges

EXIT_REFUSED, _STATUS_OF_SIGNALS = 2, 128
# After the second signal a worker has this long; after the first one, its grace and this.
KILL_AFTER_S = 10.0
_IDLE_S = 60.0
_PR_SET_PDEATHSIG = 1
_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(slots=True)
class _Child:
    argv: Sequence[str]
    number: int
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    # When it starts (again); None: it does not.
    due_s: float | None = 0.0
    quick_deaths: int = 0
    reloads: bool = False


class WorkerProcesses:
    """Owner of the processes while `run` runs. *commands*: one command line each."""

    __slots__ = ("_changes", "_children", "_exit_code", "_grace_s", "_kill_s", "_signals", "_watch_s")

    def __init__(self, commands: Sequence[Sequence[str]], grace_s: float, changes: SourceChanges | None = None) -> None:
        self._children = [_Child(argv, number) for number, argv in enumerate(commands, 1)]
        self._grace_s, self._changes = grace_s, changes
        self._signals: list[int] = []
        self._exit_code = 0
        self._kill_s = float("inf")
        self._watch_s = 0.0

    def run(self) -> int:
        """Run the processes until all are done, or have stopped; return the exit code."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            while self._step(time.monotonic()):
                arrived = signal.sigtimedwait(_SIGNALS, self._idle_s(time.monotonic()))
                # Compared one by one: after a SIGSTOP, CPython 3.11 may report a signal that never
                # came.
                if arrived and arrived.si_signo in {signal.SIGTERM, signal.SIGINT}:
                    self._stop(arrived.si_signo, time.monotonic())
        finally:
            for child in self._children:
                if child.process is not None:
                    child.process.kill()
                    child.process.wait()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return _STATUS_OF_SIGNALS + self._signals[-1] if len(self._signals) > 1 else self._exit_code

    def _step(self, now_s: float) -> bool:
        """Do what is due; return whether there is anything to wait for."""
        for child in self._children:
            if child.process is not None and child.process.poll() is not None:
                self._ended(child, child.process.returncode, now_s)
        if self._changes is not None and not self._is_stopping and now_s >= self._watch_s:
            self._watch_s = now_s + PERIOD_S
            if changed := self._changes.changed():
                self._reload(changed, now_s)
        for child in self._children:
            if child.due_s is not None and child.due_s <= now_s and not self._is_stopping:
                self._start(child, now_s)
            if child.process is not None and now_s >= self._kill_s:
                child.process.kill()
        if any(child.process is not None for child in self._children):
            return True
        if self._is_stopping:
            return False
        # With --reload it waits for the next change, whatever the program did.
        return self._changes is not None or any(child.due_s is not None for child in self._children)

    @property
    def _is_stopping(self) -> bool:
        return bool(self._signals) or self._exit_code == EXIT_REFUSED

    def _idle_s(self, now_s: float) -> float:
        due = [child.due_s for child in self._children if child.due_s is not None and child.process is None]
        if self._changes is not None:
            due.append(self._watch_s)
        if self._is_stopping:
            due = [self._kill_s]
        return min(max(0.0, min(due, default=now_s + _IDLE_S) - now_s), _IDLE_S)

    def _start(self, child: _Child, now_s: float) -> None:
        parent = os.getpid()
        child.process = subprocess.Popen(  # noqa: S603 - our own command line
            child.argv,
            process_group=0,
            preexec_fn=lambda: _in_child(parent),  # noqa: PLW1509 - this process has one thread
        )
        child.started_s, child.due_s, child.reloads = now_s, None, False

    def _ended(self, child: _Child, exit_code: int, now_s: float) -> None:
        child.process = None
        if self._is_stopping:
            # One that had not begun to listen for signals ends by SIGTERM itself.
            if exit_code not in {0, -signal.SIGTERM} and self._exit_code != EXIT_REFUSED:
                self._exit_code = 1
        elif child.reloads:
            child.due_s = now_s
        elif exit_code == EXIT_REFUSED and self._changes is None:
            # It cannot be imported, and could not a second later.
            self._exit_code = EXIT_REFUSED
            self._tell(signal.SIGTERM, now_s + self._grace_s + KILL_AFTER_S)
        elif exit_code and not (exit_code == EXIT_REFUSED and self._changes is not None):
            uptime_s = now_s - child.started_s
            child.quick_deaths = child.quick_deaths + 1 if uptime_s < STABLE_S else 0
            delay_s = restart_delay_s(1, uptime_s, child.quick_deaths - 1)
            assert delay_s is not None
            child.due_s = now_s + delay_s
            _say(f"worker {child.number} ended with {exit_code} and starts again in {delay_s:.1f} s")

    def _reload(self, changed: Sequence[str], now_s: float) -> None:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        _say(f"{changed[0]}{more} changed: the workers start again")
        for child in self._children:
            if child.process is None:
                child.due_s = now_s
            else:
                child.reloads = True
                child.process.terminate()

    def _stop(self, number: int, now_s: float) -> None:
        self._signals.append(number)
        is_first = len(self._signals) == 1
        self._tell(signal.SIGTERM, now_s + KILL_AFTER_S + (self._grace_s if is_first else 0.0))

    def _tell(self, number: int, kill_s: float) -> None:
        self._kill_s = kill_s
        for child in self._children:
            if child.process is not None:
                child.process.send_signal(number)


def _in_child(parent: int) -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(75)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def _say(text: str) -> None:
    typer.echo(text, err=True)
    sys.stderr.flush()
