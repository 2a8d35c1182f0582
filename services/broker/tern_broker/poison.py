"""An entry that this node cannot apply: the note about it, and the node that blocks in front of it
instead of ending for ever.

Apply raised unexpectedly, or its effects did. The state is then half changed, so the process ends
and replays the log. The note `poison` names the entry. The second time the node blocks in front of
the entry: it keeps log and votes and acknowledges the leader's entries, but applies nothing more.
Another release tries the entry again, twice.
"""

import json
import logging
import traceback
from collections import Counter
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tern_raft import RaftNode
from tern_raft.pass_over import Stage, read_word
from tern_store import CommitLog, Files, StoredEntry, StoreError
from tern_store.files import is_done, replace_whole
from tern_store.small_files import read_text, remove_mark
from tern_wire.errors import LinkBodyMalformed
from tern_wire.link.commands import CommandKind, read_entry

log = logging.getLogger(__name__)
NOTE = "poison"
# A bit that flips in memory, or a machine that lacked a resource, does not raise again.
TRIES_MAX = 2
# Of an exception's text; the log has the traceback.
TEXT_SIZE_MAX = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisoned:
    """The note: the entry, the error and its place, the *release* that met it, and the number of
    tries.
    """

    index: int
    term: int
    crc: int
    error: str
    where: str
    release: str
    tries: int


class Poison:
    """Of one node. Owner: the core loop."""

    def __init__(self, directory: Path, release: str, files: Files) -> None:
        """Read the note. *release*: the unique name of the running release."""
        self._directory, self._release, self._files = directory, release, files
        self._note = _read(read_text(directory / NOTE, files))

    def block(self, raft: RaftNode) -> None:
        """Block *raft* in front of the noted entry, if this release has tried it often enough."""
        self._raft, note = raft, self._note
        if note is not None and note.release == self._release and note.tries >= TRIES_MAX:
            raft.pass_over.blocked = note.index, note.crc

    def met(self, entry: StoredEntry, error: Exception) -> None:
        """Note *entry*, which could not be applied; the process ends after this.

        Damage, and resources that the machine lacks, are no fault of the entry and are not noted.
        """
        if isinstance(error, OSError | StoreError | MemoryError):
            return
        before, tries = self._note, 1
        if before is not None and (before.index, before.crc, before.release) == (entry.index, entry.crc, self._release):
            tries = before.tries + 1
        frame = traceback.extract_tb(error.__traceback__)[-1]
        self._note = Poisoned(
            index=entry.index,
            term=entry.term,
            crc=entry.crc,
            error=f"{type(error).__name__}: {error}"[:TEXT_SIZE_MAX],
            where=f"{Path(frame.filename).name}:{frame.lineno}",
            release=self._release,
            tries=tries,
        )
        facts = json.dumps(asdict(self._note)).encode() + b"\n"
        log.critical("an entry cannot be applied", extra={"entry": entry.index, "tries": tries})
        # Without the note the next start tries again, and ends again.
        is_done(lambda: replace_whole(self._directory / NOTE, facts, self._files))

    def applied(self, index: int) -> None:
        """Drop the note once entry *index* was applied, or passed over."""
        if self._note is not None and index >= self._note.index:
            # A note that stays names an entry that never comes again.
            is_done(lambda: remove_mark(self._directory, NOTE, self._files))
            self._note = None
            self._raft.pass_over.blocked = None

    def ask(self, index: int, is_withdrawn: bool) -> dict[str, Any]:
        """Pass over entry *index*, or try it again, for an operator; return the result for the HTTP
        route. Only the leader accepts it.
        """
        raft = self._raft
        reason = raft.pass_over.withdraw(index) if is_withdrawn else raft.pass_over.ask(index)
        if not reason:
            log.warning("an operator has decided about an entry", extra={"entry": index, "try_again": is_withdrawn})
        return {"asked": not reason, "index": index, "leader": raft.leader or "", "reason": reason}

    def describe(self) -> dict[str, Any] | None:
        """Return the entry in front of which this node waits, the reason and the content; None if
        it applies what is committed.

        The leader adds the peers that wait as well.
        """
        raft = self._raft
        if (waiting := raft.pass_over.waiting) is None:
            return None
        entry, note = raft.log.entry(waiting.index), self._note
        if note is None or (note.index, note.crc) != (entry.index, entry.crc):
            note = None
        return {
            "index": entry.index,
            "term": entry.term,
            "crc": f"{entry.crc:08x}",
            "error": note.error if note is not None else "",
            "where": note.where if note is not None else "",
            "release": self._release,
            "commands": _commands(entry),
            "asked": waiting.asked_at > 0,
            "peers": {peer: found.index for peer, found in sorted(raft.pass_over.peers.items())},
        }


def was_applied(entry: StoredEntry, passed_over: Collection[tuple[int, int]], log_: CommitLog) -> str:
    """Return why a node with *passed_over* must be copied anew at *entry* of kind PASS_OVER; "" if
    it need not.

    No voter can have applied an entry that the group passes over; a node that was copied meanwhile
    may have. An entry that is not in the log does not count.
    """
    word = read_word(entry)
    if word.stage != Stage.DONE or (word.index, word.crc) in passed_over:
        return ""
    if not log_.first_index <= word.index < entry.index or log_.mark(word.index).crc != word.crc:
        return ""
    return f"this node has applied entry {word.index}, which the group has passed over"


def _read(text: str | None) -> Poisoned | None:
    if text is None:
        return None
    try:
        facts = json.loads(text)
        return Poisoned(
            index=int(facts["index"]),
            term=int(facts["term"]),
            crc=int(facts["crc"]),
            error=str(facts["error"]),
            where=str(facts["where"]),
            release=str(facts["release"]),
            tries=int(facts["tries"]),
        )
    except (ValueError, KeyError, TypeError):
        log.warning("the note about an entry that could not be applied is unreadable: the entry is tried again")
        return None


def _commands(entry: StoredEntry) -> dict[str, int]:
    """Return the number of commands of each kind in *entry*."""
    try:
        _, commands = read_entry(entry.body)
    except LinkBodyMalformed:
        return {}
    known = set(CommandKind)
    names = (CommandKind(one.kind).name.lower() if one.kind in known else str(one.kind) for one in commands)
    return dict(Counter(names))
