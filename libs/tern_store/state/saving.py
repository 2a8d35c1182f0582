"""A save of the store: the order in which files become durable, and a saved state's payload.

 0        4
 | size 4 | section: MessagePack map, *size* bytes | the owner's payload ...    little-endian
The section holds the marks of the derived files. In a state at a segment's begin it holds the ends
of all queues.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tern_store.errors import StateCorrupt
from tern_store.files import Buffer, is_done
from tern_store.log.entry import LogMark
from tern_store.log.sync_job import SyncJob
from tern_store.state.state_file import StateSave
from tern_wire.errors import MalformedBody
from tern_wire.link.codec import decode_msgpack, encode_msgpack

FORMAT = 1
_SIZE = struct.Struct("<I")
# Makes the owner's part of a saved state.
Payload = Callable[[], Sequence[Buffer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """A save under way: `run` on any thread, or the log's sync and `run_behind_log`; then
    `Store.saved`.
    """

    mark: LogMark
    log_sync: SyncJob | None
    derived_syncs: tuple[SyncJob, ...]
    state: StateSave

    def run(self) -> bool:
        """Durable here: the log up to the mark, the derived files, then the state that counts them.
        False if the machine lacks something for the state: the previous one stays. OSError of
        earlier files: run it again; SyncLost is final.
        """
        if self.log_sync is not None:
            self.log_sync.run()
        return self.run_behind_log()

    def run_behind_log(self) -> bool:
        """The rest of `run`, for callers that run *log_sync* themselves to see its failure
        first.
        """
        for job in self.derived_syncs:
            job.run()
        return is_done(self.state.run)


def payload_with(section: Mapping[str, Any], payload: Payload) -> Payload:
    """Prepend *section*, as it is now, to the result of *payload*."""
    packed = encode_msgpack({"format": FORMAT, **section})
    return lambda: [_SIZE.pack(len(packed)), packed, *payload()]


def split_payload(payload: bytes) -> tuple[dict[str, Any], bytes]:
    """Section and owner's payload of a saved state; StateCorrupt if another release wrote it."""
    end = _SIZE.size + (_SIZE.unpack_from(payload)[0] if len(payload) >= _SIZE.size else 0)
    try:
        section = decode_msgpack(payload[_SIZE.size : end])
    except MalformedBody:
        section = None
    if not isinstance(section, dict) or section.get("format") != FORMAT:
        raise StateCorrupt("the saved state is not of this release's format")
    return section, payload[end:]
