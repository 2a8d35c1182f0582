"""Which segments may go: by age at a fixed hour, by the size of the log, or because the disk fills up. Pure decisions.

RocketMQ's rules and defaults (fileReservedTime 72 h, deleteWhen 04, diskMaxUsedSpaceRatio 75, cleaning by force from 85, writes refused
from 90). Reference: Apache RocketMQ 5, DefaultMessageStore.CleanCommitLogService. Two differences: age counts from when a message became
visible, so what a segment holds that is younger in that sense is copied forward first; and cleaning by force spares what a group has not read
and what its topic does not give up (`when_full`), so that sends are refused instead.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

HOUR_MS = 3_600_000
# A segment of which more than this share is still needed is kept whole: copying it would cost more than it frees.
NEEDED_SHARE_MAX = 0.20
# ... and where the disk is full, than this: a group that reads no more must not keep everything behind what it left. What is copied has room, since
# that begins at 85 %, and sends are refused from 90 % on.
NEEDED_SHARE_OF_ROOM_MAX = 0.50
# How fast copies may be proposed, so that they do not crowd out producers.
COPY_RATE_BYTES_PER_S = 20 * 1_000_000


class Pressure(StrEnum):
    """What the disk asks for."""

    NONE = "none"
    CLEAN = "clean"  # drop what is old enough now, whatever the hour
    FORCE = "force"  # drop the oldest segment even if it is not old enough, but for what is unread
    REFUSE = "refuse"  # and take no new messages


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
    """As settable. *delete_hour* is one of the day's 24 in local time, *size_max_bytes* 0 for no limit; ratios of the disk."""

    retention_ms: int = 72 * HOUR_MS
    delete_hour: int = 4
    size_max_bytes: int = 0
    clean_ratio: float = 0.75
    force_ratio: float = 0.85
    refuse_ratio: float = 0.90


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Bytes used and there at all, of the disk or of the budget for the data directory."""

    used_bytes: int
    capacity_bytes: int

    @property
    def ratio(self) -> float:
        """0 to 1, more when a budget is overdrawn."""
        return self.used_bytes / self.capacity_bytes if self.capacity_bytes else 1.0


@dataclass(frozen=True, slots=True)
class SegmentAge:
    """A segment that could go: [*begin*, *end*) of the log, its newest entry of *newest_ms*."""

    begin: int
    end: int
    newest_ms: int


@dataclass(frozen=True, slots=True)
class TrimPlan:
    """Drop everything before *position*. *forced*: although it is not old enough."""

    position: int
    forced: bool
    reason: str
    # For want of space alone: what is unread stays. By age and by size the log is as long as the operator wants it.
    makes_room: bool = False


def pressure(rules: RetentionRules, disk: DiskUse) -> Pressure:
    """What *disk* asks for; each mark belongs to the stronger side."""
    if disk.ratio >= rules.refuse_ratio:
        return Pressure.REFUSE
    if disk.ratio >= rules.force_ratio:
        return Pressure.FORCE
    if disk.ratio >= rules.clean_ratio:
        return Pressure.CLEAN
    return Pressure.NONE


def plan_trim(
    rules: RetentionRules,
    segments: Sequence[SegmentAge],
    disk: DiskUse,
    *,
    end: int,
    now_ms: int,
    hour: int,
    asked: bool = False,
) -> TrimPlan | None:
    """What to drop now, or None. *segments*: those that may go at all, oldest first (never the last of the log).

    *end* is where the log ends, *now_ms* the group's logical time, *hour* the wall clock's (0 to 23), *asked* that somebody wants it now. Ages are compared with
    "older than", as RocketMQ: a segment of exactly the retention stays. A clock that went back makes segments younger, never older.
    """
    if not segments:
        return None
    wanted = pressure(rules, disk)
    old = _count_while(segments, lambda segment: now_ms - segment.newest_ms > rules.retention_ms)
    if old and (asked or hour == rules.delete_hour or wanted is not Pressure.NONE):
        why = "asked for" if asked else f"disk {disk.ratio:.0%} full" if wanted is not Pressure.NONE else "its hour"
        return TrimPlan(segments[old - 1].end, forced=False, reason=f"older than the retention; {why}")
    if rules.size_max_bytes:
        # What stays behind a dropped segment is still as large as allowed: sizes are a promise of how much is kept, too.
        over = _count_while(segments, lambda segment: end - segment.end >= rules.size_max_bytes)
        if over:
            reason = f"the log has {end - segments[0].begin} bytes, {rules.size_max_bytes} are to be kept"
            return TrimPlan(segments[over - 1].end, forced=True, reason=reason)
    if wanted in {Pressure.FORCE, Pressure.REFUSE}:
        # One at a time: the disk is asked again before the next.
        return TrimPlan(segments[0].end, forced=True, reason=f"disk {disk.ratio:.0%} full", makes_room=True)
    return None


def _count_while(segments: Sequence[SegmentAge], holds: Callable[[SegmentAge], bool]) -> int:
    count = 0
    for segment in segments:
        if not holds(segment):
            break
        count += 1
    return count
