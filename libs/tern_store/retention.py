"""Which segments to drop: by age at a fixed hour, by size of the log, or on a full disk.

All functions are pure. Rules and defaults are RocketMQ's (fileReservedTime 72 h, deleteWhen 04,
diskMaxUsedSpaceRatio 75, cleaning by force from 85, writes refused from 90), with two differences.
Age counts from the time a message became visible, so younger records in a segment are copied
forward first. Cleaning by force spares messages that a group has not read and that their topic does
not give up (`when_full`); sends are refused instead.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

HOUR_MS = 3_600_000
# A segment of which more than this share is needed is kept: a copy would cost more than it frees.
NEEDED_SHARE_MAX = 0.20
# The same limit on a full disk, so that a group that stopped reading does not keep everything
# behind its offset. The copies have room: copying begins at 85 %, sends are refused from 90 % on.
NEEDED_SHARE_OF_ROOM_MAX = 0.50
# Rate limit of copies, so that producers keep most of the disk.
COPY_RATE_BYTES_PER_S = 20 * 1_000_000


class Pressure(StrEnum):
    """The reaction that the fill of the disk requires."""

    NONE = "none"
    CLEAN = "clean"  # drop old segments now, at any hour
    FORCE = "force"  # drop the oldest segment even if it is young, but no unread messages
    REFUSE = "refuse"  # and accept no new messages


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
    """Settable rules.
    *delete_hour*: 0 to 23, local time; *size_max_bytes*: 0 for none; ratios of disk.
    """

    retention_ms: int = 72 * HOUR_MS
    delete_hour: int = 4
    size_max_bytes: int = 0
    clean_ratio: float = 0.75
    force_ratio: float = 0.85
    refuse_ratio: float = 0.90


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Bytes used and bytes in total, of the disk or of the data directory's budget."""

    used_bytes: int
    capacity_bytes: int

    @property
    def ratio(self) -> float:
        """Used share, from 0; above 1 when a budget is exceeded."""
        return self.used_bytes / self.capacity_bytes if self.capacity_bytes else 1.0


@dataclass(frozen=True, slots=True)
class SegmentAge:
    """A droppable segment: [*begin*, *end*) of the log; its newest entry is of *newest_ms*."""

    begin: int
    end: int
    newest_ms: int


@dataclass(frozen=True, slots=True)
class TrimPlan:
    """Drop everything before *position*. *forced*: although it is not old enough."""

    position: int
    forced: bool
    reason: str
    # The trim only makes room, so unread messages stay. Trims by age and size follow the operator's
    # settings and drop them.
    makes_room: bool = False
    # The disk is too full to spare what read leases hold.
    breaks_leases: bool = False


def pressure(rules: RetentionRules, disk: DiskUse) -> Pressure:
    """Required reaction to *disk*; a ratio equal to a threshold counts as above it."""
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
    """Choose what to drop now; None for nothing.
    *segments*: the droppable ones, oldest first, never the last of the log. *end*: the log's end.
    *now_ms*: the group's logical time. *hour*: the wall clock's, 0 to 23. *asked*: an operator
    requests a trim now. A segment must be older than the retention, as in RocketMQ; an equal age
    stays. A clock set back makes segments younger, never older.
    """
    if not segments:
        return None
    wanted = pressure(rules, disk)
    old = _count_while(segments, lambda segment: now_ms - segment.newest_ms > rules.retention_ms)
    if old and (asked or hour == rules.delete_hour or wanted is not Pressure.NONE):
        why = "asked for" if asked else f"disk {disk.ratio:.0%} full" if wanted is not Pressure.NONE else "its hour"
        return TrimPlan(segments[old - 1].end, forced=False, reason=f"older than the retention; {why}")
    if rules.size_max_bytes:
        # The rest keeps the full allowed size: the setting also promises how much is kept.
        over = _count_while(segments, lambda segment: end - segment.end >= rules.size_max_bytes)
        if over:
            reason = f"the log has {end - segments[0].begin} bytes, {rules.size_max_bytes} are to be kept"
            return TrimPlan(segments[over - 1].end, forced=True, reason=reason)
    if wanted in {Pressure.FORCE, Pressure.REFUSE}:
        # One segment at a time: the disk is measured again before the next.
        return TrimPlan(segments[0].end, forced=True, reason=f"disk {disk.ratio:.0%} full", makes_room=True)
    return None


def _count_while(segments: Sequence[SegmentAge], holds: Callable[[SegmentAge], bool]) -> int:
    count = 0
    for segment in segments:
        if not holds(segment):
            break
        count += 1
    return count
