"""Replacement of a node's files by a complete copy, whose files end with `.incoming` beside them.

The file `swap` records the progress: {"step": "clear" | "place", "start": mark or null, "genesis":
hex}
 clear   the old log goes, the states, and everything derived from the log
 place   incoming files get their names; then the notes of damage go, and `swap` itself

Law: the note `quarantine` is durable before the first old file goes, and is removed when the last
new one has its name. A directory between two logs is therefore never opened as a log, with or
without a look at `swap`. Votes and the lock are not touched.
"""

import json
from dataclasses import astuple, dataclass
from pathlib import Path

from tern_store import small_files
from tern_store.errors import LogRot
from tern_store.files import REAL_FILES, Files, replace_whole
from tern_store.index.key_index import KeyIndex
from tern_store.keys.sent_keys import FOLDER as KEYS_FOLDER
from tern_store.log.commit_log import INDEX_FOLDER, LOG_FOLDER
from tern_store.log.entry import LogMark
from tern_store.log.log_start import LogStart, write_start
from tern_store.queues.consume_queue import ConsumeQueues
from tern_store.small_files import CHECKPOINT, CONFIG_FOLDER, QUARANTINE, REBUILD
from tern_store.state.state_file import STATE_FOLDER
from tern_store.timers.timers import Timers

INCOMING = ".incoming"
SWAP = "swap"
_CLEAR, _PLACE = "clear", "place"


@dataclass(frozen=True, slots=True)
class _Swap:
    step: str
    start: LogStart | None

    def encode(self) -> bytes:
        mark = list(astuple(self.start.mark)) if self.start is not None else None
        genesis = self.start.genesis.hex() if self.start is not None else ""
        return json.dumps({"step": self.step, "start": mark, "genesis": genesis}).encode() + b"\n"


def swap(directory: Path, start: LogStart | None, files: Files) -> None:
    """Durable here: the complete, synced copy below *directory* is the node's log.
    *start* is its begin if that is not its genesis.
    """
    forbid_opening(directory, "a copy from the leader is taking the place of the log", files)
    replace_whole(directory / SWAP, _Swap(_CLEAR, start).encode(), files)
    finish_swap(directory, files)


def finish_swap(directory: Path, files: Files = REAL_FILES) -> bool:
    """Continue an interrupted swap, before a store is opened. True if there was one."""
    found = _read(directory, files)
    if found is None:
        return False
    if found.step == _CLEAR:
        clear_log(directory, files)
        replace_whole(directory / SWAP, _Swap(_PLACE, found.start).encode(), files)
    _place(directory, found.start, files)
    return True


def forbid_opening(directory: Path, reason: str, files: Files) -> None:
    """Durable here: no start opens the log, whatever its contents, until a copy has replaced it."""
    small_files.quarantine(directory, LogRot(directory / LOG_FOLDER, 0, reason), files)


def clear_log(directory: Path, files: Files) -> None:
    """Remove the log, its states and derived files, but no incoming file.
    Call `forbid_opening` first.
    """
    # States go before derived files: the files that they name must exist.
    _unlink_all(directory / STATE_FOLDER, files)
    for part in (ConsumeQueues.open, KeyIndex.open, Timers.open):
        opened = part(directory, files=files)
        opened.wipe()
        opened.close()
    for folder in (INDEX_FOLDER, CONFIG_FOLDER, KEYS_FOLDER, LOG_FOLDER):
        _unlink_all(directory / folder, files)
    if CHECKPOINT in files.listdir(directory):
        files.unlink(directory / CHECKPOINT)


def _place(directory: Path, start: LogStart | None, files: Files) -> None:
    if start is not None:
        write_start(directory / LOG_FOLDER, start, files)
    for folder in (directory / LOG_FOLDER, directory / STATE_FOLDER, directory / KEYS_FOLDER):
        files.makedirs(folder)
        for name in files.listdir(folder):
            if name.endswith(INCOMING):
                files.rename(folder / name, folder / name.removesuffix(INCOMING))
        # Also if nothing is left to rename: the process that renamed may have ended before this
        # line.
        files.fsync_dir(folder)
    # The copy is synced and has everything that the last stop may have lost. The quarantine goes
    # last, but for the note of this swap.
    small_files.remove_abort(directory, files)
    for name in (REBUILD, QUARANTINE, SWAP):
        small_files.remove_mark(directory, name, files)


def _unlink_all(folder: Path, files: Files) -> None:
    names = [name for name in files.listdir(folder) if not name.endswith(INCOMING)]
    for name in names:
        files.unlink(folder / name)
    if names:
        files.fsync_dir(folder)


def _read(directory: Path, files: Files) -> _Swap | None:
    """The swap under way; None if there is none or its note is damaged.
    If damaged, the quarantine is still there, and the copy is checked again.
    """
    text = small_files.read_text(directory / SWAP, files)
    if text is None:
        return None
    try:
        facts = json.loads(text)
        mark = facts["start"]
        start = LogStart(LogMark(*map(int, mark)), bytes.fromhex(facts["genesis"])) if mark is not None else None
        return _Swap(facts["step"], start) if facts["step"] in {_CLEAR, _PLACE} else None
    except (ValueError, KeyError, TypeError):
        return None
