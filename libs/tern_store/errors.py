"""What a store refuses or cannot read. Whoever opens the store decides: rebuild, fall back, or stop with this text."""

from pathlib import Path


class StoreError(Exception):
    """Base of everything that this package raises on purpose; OSError passes through as it is."""


class SyncLost(OSError):
    """A sync failed, or a write met an error of the medium (EIO): what was written may be gone although it can still be read.

    Trying again would lie: the kernel has marked the lost pages clean. Nothing else that a kernel refuses says anything of what was
    written before. Reference: "Can applications recover from fsync failures?", USENIX ATC 2020.
    """


class LogRot(StoreError):
    """Bytes that were once good are not any more: the node must neither vote nor lead until it is rebuilt."""

    def __init__(self, file: Path, position: int, reason: str) -> None:
        self.file, self.position, self.reason = file, position, reason
        super().__init__(f"{file}: the log is damaged at position {position}: {reason}. Rebuild this node from a peer.")


class Quarantined(LogRot):
    """A node that found its log damaged in an earlier life: it serves nothing, neither votes nor leads, and says why."""


class DerivedDamage(StoreError):
    """A file that follows from the log is missing, short or damaged: it is never served, and is made again from the log."""

    def __init__(self, file: Path, position: int, reason: str) -> None:
        self.file, self.position, self.reason = file, position, reason
        super().__init__(f"{file}: damaged at byte {position}: {reason}. The node derives it again from its log.")


class EntryRefused(StoreError):
    """An entry that does not continue this log; nothing was written."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class StateCorrupt(StoreError):
    """A saved state that does not belong to this log; an older one, or the log from its start, may do."""


class StateOfOtherRelease(StoreError):
    """The state at the begin of a trimmed log is in a form that this release does not read: nothing of it is damaged, and nothing is made anew."""

    def __init__(self, file: Path, index: int) -> None:
        self.file, self.index = file, index
        super().__init__(
            f"{file}: the state of entry {index}, with which this node's log begins, was saved by a release whose form this one does not read. "
            "Start this node with the release that it ran before, or with a newer one."
        )


class VoteCorrupt(StoreError):
    """A vote slot is unreadable: this node may not know any more whom it voted for."""


class DirectoryInUse(StoreError):
    """Another process owns the data directory."""


class WrongGroup(StoreError):
    """The directory belongs to another broker group, or to none."""


class BackupRefused(StoreError):
    """A directory that is no backup, or none of this group, or not whole: its text says what to do."""


class BackupDamaged(BackupRefused):
    """A backup that is not what was written: nothing is made of it."""


class CopyRefused(StoreError):
    """What a peer sent for a rebuild does not continue the copy of its log; nothing of it was kept."""

    def __init__(self, position: int, reason: str) -> None:
        self.position, self.reason = position, reason
        super().__init__(f"the copy is refused at position {position} of the log: {reason}. It is asked for again.")
