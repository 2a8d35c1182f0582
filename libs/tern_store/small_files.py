"""Small files of a node's directory: RocketMQ's `abort`, `checkpoint`, `config/*.json`, and marks.

The marks `quarantine` and `rebuild` are ours. `abort` holds the pid in one line; it exists while
the node runs, and after a crash. `checkpoint` is big-endian in a page of 4 KiB:
 0          8             16           24          32            40                  48
 | log ms 8 | queues ms 8 | index ms 8 | flushed 8 | confirmed 8 | queues position 8 | zeros ...
The times are those of the newest message that each file holds on disk; the positions are in the
log. Reference: Apache RocketMQ 5, StoreCheckpoint. Recovery uses the saved state; this page and the
JSON files show the same facts to operators and to RocketMQ's tools.

Law: a JSON file appears whole (written aside, synced, renamed), and its predecessor stays as
`.bak`. The marks `quarantine` and `rebuild` are durable before the node ends, so every restart sees
them.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tern_store.errors import DerivedDamage, LogRot, Quarantined
from tern_store.files import Files, read_whole, replace_whole, write_synced

ABORT = "abort"
CHECKPOINT = "checkpoint"
CONFIG_FOLDER = "config"
# A topic attribute of ours; RocketMQ puts a sign before the name.
TOPIC_ID = "ternmq.topic.id"
QUARANTINE = "quarantine"
REBUILD = "rebuild"
CHECKPOINT_SIZE_BYTES = 4096
_CHECKPOINT = struct.Struct(">qqqqqq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The newest visible time (ms) on disk, and the position up to which the log is durable."""

    newest_ms: int
    position: int

    def encode(self) -> bytes:
        """The page as bytes."""
        facts = (self.newest_ms, self.newest_ms, self.newest_ms, self.position, self.position, self.position)
        return _CHECKPOINT.pack(*facts).ljust(CHECKPOINT_SIZE_BYTES, b"\0")


def write_abort(directory: Path, pid: int, files: Files) -> str | None:
    """Durable here: this node runs.
    Returns the previous contents, left by a process that was not stopped in order; None if it was.
    """
    path = directory / ABORT
    before = read_text(path, files)
    replace_whole(path, f"{pid}\n".encode(), files)
    return before


def remove_abort(directory: Path, files: Files) -> None:
    """Durable here: the node was stopped in order, after everything was saved."""
    if ABORT in files.listdir(directory):
        files.unlink(directory / ABORT)
        files.fsync_dir(directory)


def write_mark(directory: Path, name: str, facts: Mapping[str, Any], files: Files) -> None:
    """Durable here: the mark `quarantine` or `rebuild` with its reason. An earlier reason stays."""
    if name not in files.listdir(directory):
        replace_whole(directory / name, json.dumps(facts).encode() + b"\n", files)


def remove_mark(directory: Path, name: str, files: Files) -> None:
    """Durable here: the mark *name* is removed."""
    if name in files.listdir(directory):
        files.unlink(directory / name)
        files.fsync_dir(directory)


def quarantine(directory: Path, rot: LogRot, files: Files) -> None:
    """Durable here: this node's log is damaged, even if a later start reads it without an error."""
    facts = {"file": str(rot.file), "position": rot.position, "reason": rot.reason}
    write_mark(directory, QUARANTINE, facts, files)


def request_rebuild(directory: Path, damage: DerivedDamage, files: Files) -> None:
    """Durable here: the next start makes all derived files again."""
    facts = {"file": str(damage.file), "position": damage.position, "reason": damage.reason}
    write_mark(directory, REBUILD, facts, files)


def refuse_quarantined(directory: Path, files: Files) -> None:
    """Raise Quarantined, with the recorded damage, if the node is quarantined."""
    text = read_text(directory / QUARANTINE, files)
    if text is None:
        return
    try:
        facts = json.loads(text)
        found = Quarantined(Path(facts["file"]), int(facts["position"]), str(facts["reason"]))
    except (ValueError, KeyError, TypeError):
        found = Quarantined(directory / QUARANTINE, 0, "the note of what was found is unreadable")
    raise found


def write_checkpoint(directory: Path, checkpoint: Checkpoint, files: Files) -> None:
    """Durable here: the whole page."""
    replace_whole(directory / CHECKPOINT, checkpoint.encode(), files)


def write_config(directory: Path, name: str, document: Mapping[str, Any], files: Files) -> None:
    """Durable here: `config/{name}` as a whole; its predecessor is `config/{name}.bak`."""
    folder = directory / CONFIG_FOLDER
    files.makedirs(folder)
    fresh = folder / f"{name}.tmp"
    write_synced(fresh, json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n", files)
    if name in files.listdir(folder):
        files.rename(folder / name, folder / f"{name}.bak")
    files.rename(fresh, folder / name)
    files.fsync_dir(folder)


def read_text(path: Path, files: Files) -> str | None:
    """Read a small file's text, None if there is none."""
    try:
        return read_whole(path, files).decode("utf-8", "replace")
    except FileNotFoundError:
        return None


def topic_id_of(facts: Mapping[str, Any]) -> int | None:
    """The id of a topic of `topics.json`, None if absent.
    *facts*: the topic's object in RocketMQ's form; AttributeError if it is no object.
    """
    attributes = facts.get("attributes", {})
    found = attributes.get(f"+{TOPIC_ID}", attributes.get(TOPIC_ID))
    return None if found is None else int(found)
