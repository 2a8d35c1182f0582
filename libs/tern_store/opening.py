"""Choice of the state at a start: the newest that the log reaches, or the one of the log's
beginning.

Law: damage of derived files costs no more than making them again; damage of the log costs a
quarantine.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from tern_store import small_files
from tern_store.errors import DerivedDamage, LogRot, StateCorrupt, StateOfOtherRelease, StoreError
from tern_store.files import Files
from tern_store.log.commit_log import CommitLog
from tern_store.log.entry import LogMark
from tern_store.log.genesis import Genesis
from tern_store.state.saving import split_payload
from tern_store.state.state_file import SavedState, boundaries, load_boundary, load_states


class Opened(Protocol):
    """The opened store (`store.Store`)."""

    def close(self) -> None:
        """Close the files."""
        ...

    def begin_again(self, reason: str, base: SavedState | None) -> None:
        """Forward to Store.begin_again."""
        ...


Made = TypeVar("Made", bound=Opened)


def open_store(
    made: Callable[[CommitLog, SavedState | None], Made],
    directory: Path,
    group: Genesis,
    accepts: Callable[[bytes], bool],
    knows: Callable[[bytes], bool],
    on_tear: Callable[[], None],
    bounds: tuple[int, int],
    files: Files,
) -> Made:
    """Open a log and a state and pass them to *made*, with the rules of `Store.open`.
    The directory must exist and not be quarantined. *bounds*: bytes of the largest entry, and of
    the newest entries kept in memory.
    """
    reason = small_files.read_text(directory / small_files.REBUILD, files) or ""
    refused: StoreError | None = None

    def open_log(start: LogMark | None) -> CommitLog:
        return CommitLog.open(
            directory,
            group=group,
            entry_size_max_bytes=bounds[0],
            recent_max_bytes=bounds[1],
            start=start,
            on_tear=on_tear,
            files=files,
        )

    for state in () if reason else load_states(directory, files):
        try:
            log = open_log(state.mark)
        except StateCorrupt as error:
            refused = refused or error
            continue
        try:
            if not accepts(split_payload(state.payload)[1]):
                raise StateCorrupt(f"the state of entry {state.mark.index} was saved in another format")
            return made(log, state)
        except (DerivedDamage, StateCorrupt) as damage:
            log.close()
            reason = str(damage)
            break
    try:
        log = open_log(None)
    except StoreError as error:
        if refused is None or isinstance(error, LogRot):
            raise
        raise refused from error
    store = made(log, None)
    base = None
    if log.start.index:
        found = [item for item in boundaries(directory, files) if item.position == log.start.position]
        base = load_boundary(directory, found[0], files) if found else None
        if base is None or base.mark.index != log.start.index:
            store.close()
            raise LogRot(
                directory / "state",
                log.start.position,
                "the state at the log's start, which its replay needs, cannot be read",
            )
        payload = split_payload(base.payload)[1]
        if not knows(payload):
            store.close()
            raise StateOfOtherRelease(directory / "state", base.mark.index)
        if not accepts(payload):
            store.close()
            raise LogRot(directory / "state", log.start.position, "the state at the log's start is not what was saved")
    if reason:
        small_files.write_mark(directory, small_files.REBUILD, {"reason": reason}, files)
    store.begin_again(reason, base)
    return store
