"""Progress of a job on stderr: one line that changes on a terminal, else a line now and then."""

from collections.abc import Callable
from typing import TextIO

# Without a terminal, lines go into a log: one each so many seconds.
LOG_PAUSE_S = 5.0
TERMINAL_PAUSE_S = 0.1


class Progress:
    """Tells steps and the part of the tasks that are done."""

    def __init__(self, out: TextIO, *, job: str, now_s: Callable[[], float], is_quiet: bool = False) -> None:
        self._out, self._job, self._now_s, self._is_quiet = out, job, now_s, is_quiet
        self._is_terminal = out.isatty()
        self._told_s = float("-inf")
        self._is_open = False

    def step(self, text: str) -> None:
        """Tell that *text* begins."""
        self._told_s = float("-inf")
        self._tell(text, ends=True)

    def tasks(self, what: str, done: int, total: int) -> None:
        """Tell that *done* of *total* tasks are done; some calls say nothing."""
        pause_s = TERMINAL_PAUSE_S if self._is_terminal else LOG_PAUSE_S
        if done < total and self._now_s() - self._told_s < pause_s:
            return
        self._told_s = self._now_s()
        self._tell(f"{what}: {done} of {total} tasks", ends=done >= total)

    def close(self) -> None:
        """End a line that would be overwritten."""
        if self._is_open:
            self._out.write("\n")
            self._out.flush()
        self._is_open = False

    def _tell(self, text: str, *, ends: bool) -> None:
        if self._is_quiet:
            return
        if self._is_terminal:
            self._out.write(f"\r\x1b[K{self._job}: {text}" + ("\n" if ends else ""))
            self._is_open = not ends
        else:
            self._out.write(f"{self._job}: {text}\n")
        self._out.flush()
