"""Errors of the store. The caller that opens the store decides: rebuild, fall back, or stop."""

from pathlib import Path


class StoreError(Exception):
    """Base of every error that this package raises on purpose; OSError passes through unchanged."""


class SyncLost(OSError):
    """A sync failed, or a write met an error of the medium (EIO): written data may be lost.
    The data may still be readable, and a repeated sync would report success falsely: the kernel has
    marked the lost pages clean. Other refusals of the kernel say nothing about earlier writes.
    Reference: "Can applications recover from fsync failures?", USENIX ATC 2020.
    """


class LogRot(StoreError):
    """Damage of once intact bytes: the node neither votes nor leads until it is rebuilt."""

    def __init__(self, file: Path, position: int, reason: str) -> None:
        self.file, self.position, self.reason = file, position, reason
        super().__init__(f"{file}: the log is damaged at position {position}: {reason}. Rebuild this node from a peer.")


class Quarantined(LogRot):
    """An earlier process found the log damaged: the node only reports why; it does not vote or
    lead.
    """


class DerivedDamage(StoreError):
    """A file derived from the log is missing, short or damaged: never served, made again."""

    def __init__(self, file: Path, position: int, reason: str) -> None:
        self.file, self.position, self.reason = file, position, reason
        super().__init__(f"{file}: damaged at byte {position}: {reason}. The node derives it again from its log.")


class EntryRefused(StoreError):
    """An entry that does not continue this log; nothing was written."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class StateCorrupt(StoreError):
    """A saved state that does not belong to this log; an older one, or the log's start, may be
    usable.
    """


class StateOfOtherRelease(StoreError):
    """The state at the begin of a trimmed log has a form that this release cannot read.
    The state is not damaged, so nothing is made again.
    """

    def __init__(self, file: Path, index: int) -> None:
        self.file, self.index = file, index
        super().__init__(
            f"{file}: the state of entry {index}, with which this node's log begins, was saved by a release whose form this one does not read. "
            "Start this node with the release that it ran before, or with a newer one."
        )


class VoteCorrupt(StoreError):
    """A vote slot is unreadable: the node's latest vote may be lost."""


class DirectoryInUse(StoreError):
    """Another process owns the data directory."""


class WrongGroup(StoreError):
    """The directory belongs to another broker group, or to none."""


class BackupRefused(StoreError):
    """A directory that is no backup, belongs to another group, or is incomplete; the text says the
    fix.
    """


class BackupDamaged(BackupRefused):
    """A backup that differs from what was written; it is not used."""


class CopyRefused(StoreError):
    """Data from a peer does not continue the copy of its log; none of it was kept."""

    def __init__(self, position: int, reason: str) -> None:
        self.position, self.reason = position, reason
        super().__init__(f"the copy is refused at position {position} of the log: {reason}. It is asked for again.")
