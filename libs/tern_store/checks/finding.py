"""What an offline check of a data directory finds: file, byte, reason, and what it means for the node."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

# One cause can show in every row behind it. A report that nobody can read to its end helps nobody.
FINDINGS_MAX = 1_000


class FindingKind(StrEnum):
    """What is affected, and with that who can help."""

    LOG = "log"  # the truth itself: only a peer has it
    RECORD = "record"  # stored whole, but wrong from the beginning: peers have the same bytes
    DERIVED = "derived"  # follows from the log, which makes it again
    STATE = "state"  # a saved state: an older one, or the log, stands in for it
    VOTE = "vote"  # what the node promised to its peers


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """*position* is a byte of *file*. Not *is_damage*: what a crash leaves and the next start of the node puts in order."""

    file: Path
    position: int
    reason: str
    kind: FindingKind
    is_damage: bool = True


class Findings:
    """The findings of one check, in the order in which they were made. Owner: the check."""

    def __init__(self) -> None:
        self.found: list[Finding] = []

    @property
    def is_full(self) -> bool:
        """Whether more of them are left out: whoever can stop, stops."""
        return len(self.found) >= FINDINGS_MAX

    def add(self, kind: FindingKind, file: Path, position: int, reason: str, *, is_damage: bool = True) -> None:
        """Take note, once for each byte and reason."""
        finding = Finding(file=file, position=position, reason=reason, kind=kind, is_damage=is_damage)
        if not self.is_full and finding not in self.found[-8:]:
            self.found.append(finding)
