"""Offline check of timers against their records: each must find its own record when it is due.

Law: memory is bounded by KEPT_MAX timers. They are taken in the order of the files and sorted by
position, and only the parts of the log that they point into are read again.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tern_store.checks.finding import FindingKind, Findings
from tern_store.checks.record_check import RecordPlaces, joined
from tern_store.errors import DerivedDamage
from tern_store.log.entry import LogMark
from tern_store.timers.buckets import FOLDER, TIME_MAX_MS, TIME_MIN_MS, TimerRows
from tern_store.timers.timers import Timers

# 48 bytes each: 12 MiB.
KEPT_MAX = 1 << 18
# A part of the log that can be read alone: the mark before it, and its end.
LogPart = tuple[LogMark, int]


class TimerCheck:
    """Compares timers with records. Owner: the check of a directory; call `run` after the log."""

    def __init__(
        self,
        timers: Timers,
        directory: Path,
        findings: Findings,
        read_again: Callable[[LogMark, int], Iterator[RecordPlaces]],
    ) -> None:
        """*timers*: those of the saved state; *read_again*: the records from a mark to a
        position.
        """
        self._timers, self._folder, self._findings = timers, directory / FOLDER, findings
        self._read_again = read_again

    def run(self, parts: list[LogPart], gaps: list[tuple[int, int]]) -> None:
        """Report every timer that does not fit its record. Timers into *gaps* are skipped."""
        kept: list[TimerRows] = []
        try:
            for _, rows in self._timers.walk(TIME_MIN_MS, TIME_MAX_MS):
                kept.append(rows)
                if sum(map(len, kept)) >= KEPT_MAX:
                    self._compare(np.concatenate(kept), parts, gaps)
                    kept = []
        except DerivedDamage:
            pass  # the verification of the timers' files names the bytes
        if kept:
            self._compare(np.concatenate(kept), parts, gaps)

    def _compare(self, rows: TimerRows, parts: list[LogPart], gaps: list[tuple[int, int]]) -> None:
        rows = rows[np.argsort(rows["position"], kind="stable")]
        positions = rows["position"].astype(np.int64)
        is_judged = np.ones(len(rows), bool)
        for begin, stop in gaps:
            is_judged &= (positions < begin) | (positions >= stop)
        rows, positions = rows[is_judged], positions[is_judged]
        begins = [mark.position for mark, _ in parts]
        cuts = np.searchsorted(positions, begins).tolist()
        self._note(rows[: cuts[0] if cuts else len(rows)], "the log begins behind it")
        for number, (mark, stop) in enumerate(parts):
            found = rows[cuts[number] : cuts[number + 1] if number + 1 < len(parts) else len(rows)]
            if len(found) and not self._findings.is_full:
                self._compare_part(found, joined(list(self._read_again(mark, stop))))

    def _compare_part(self, rows: TimerRows, places: RecordPlaces) -> None:
        positions = rows["position"].astype(np.int64)
        found = np.searchsorted(places.positions, positions)
        known = found < len(places.positions)
        known[known] = places.positions[found[known]] == positions[known]
        self._note(rows[~known], "no record begins there")
        rows, found = rows[known], found[known]
        wrongs: tuple[tuple[npt.NDArray[np.bool_], str], ...] = (
            (places.sizes[found] != rows["size"], "the record there has another size"),
            (places.tags[found] != rows["tag"], "the record there has another tag"),
            (
                (places.topics[found] != rows["topic_id"]) | (places.queues[found] != rows["queue"]),
                "it is of another queue",
            ),
        )
        for is_wrong, what in wrongs:
            self._note(rows[is_wrong], what)

    def _note(self, rows: TimerRows, what: str) -> None:
        for row in rows:
            if self._findings.is_full:
                return
            reason = f"the timer {row['timer_id']} of {row['deliver_ms']} points at position {row['position']} of the log: {what}"
            self._findings.add(FindingKind.DERIVED, self._folder, 0, reason)
