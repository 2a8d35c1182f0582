"""A finding of an offline check: file, byte, reason, and its meaning for the node."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

# One cause can show in every row behind it, so a report has a limit.
FINDINGS_MAX = 1_000


class FindingKind(StrEnum):
    """The affected kind of data, which decides about the repair."""

    LOG = "log"  # the truth itself: only a peer has it
    RECORD = "record"  # stored whole, but wrong from the beginning: peers have the same bytes
    DERIVED = "derived"  # derived from the log, which makes it again
    STATE = "state"  # a saved state: an older one, or the log, replaces it
    VOTE = "vote"  # the node's promises to its peers


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """*position* is a byte of *file*.
    Not *is_damage*: left by a crash, and repaired by the next start.
    """

    file: Path
    position: int
    reason: str
    kind: FindingKind
    is_damage: bool = True


class Findings:
    """The findings of one check, in order. Owner: the check."""

    def __init__(self) -> None:
        self.found: list[Finding] = []

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached: the check should stop where it can."""
        return len(self.found) >= FINDINGS_MAX

    def add(self, kind: FindingKind, file: Path, position: int, reason: str, *, is_damage: bool = True) -> None:
        """Add a finding, once for each byte and reason."""
        finding = Finding(file=file, position=position, reason=reason, kind=kind, is_damage=is_damage)
        if not self.is_full and finding not in self.found[-8:]:
            self.found.append(finding)
