"""Files of a broker node, all synchronous: log, entry index, queues, votes, saved state, lock."""

from tern_store.checking import Checked
from tern_store.copies.sink import RebuildSink, Wanted
from tern_store.copies.source import RebuildSource
from tern_store.copies.swap import finish_swap
from tern_store.directory_lock import DirectoryLock
from tern_store.errors import (
    CopyRefused,
    DerivedDamage,
    DirectoryInUse,
    EntryRefused,
    LogRot,
    Quarantined,
    StateCorrupt,
    StateOfOtherRelease,
    StoreError,
    SyncLost,
    VoteCorrupt,
    WrongGroup,
)
from tern_store.files import REAL_FILES, Files, RealFiles
from tern_store.log.commit_log import CommitLog
from tern_store.log.entry import (
    HEADER_SIZE_BYTES,
    EntryHeader,
    EntryKind,
    LogMark,
    StoredEntry,
    decode_header,
    encode_entry,
    verify,
)
from tern_store.log.genesis import Genesis
from tern_store.log.log_start import TrimJob
from tern_store.log.segment import SpareJob
from tern_store.log.sync_job import SyncJob
from tern_store.queues.consume_queue import ConsumeQueues
from tern_store.state.saving import Save
from tern_store.state.state_file import SavedState, StateSave, load_state, load_states
from tern_store.state.vote_file import VoteFile
from tern_store.store import Store, StoreLimits

__all__ = [
    "HEADER_SIZE_BYTES",
    "REAL_FILES",
    "Checked",
    "CommitLog",
    "ConsumeQueues",
    "CopyRefused",
    "DerivedDamage",
    "DirectoryInUse",
    "DirectoryLock",
    "EntryHeader",
    "EntryKind",
    "EntryRefused",
    "Files",
    "Genesis",
    "LogMark",
    "LogRot",
    "Quarantined",
    "RealFiles",
    "RebuildSink",
    "RebuildSource",
    "Save",
    "SavedState",
    "SpareJob",
    "StateCorrupt",
    "StateOfOtherRelease",
    "StateSave",
    "Store",
    "StoreError",
    "StoreLimits",
    "StoredEntry",
    "SyncJob",
    "SyncLost",
    "TrimJob",
    "VoteCorrupt",
    "VoteFile",
    "Wanted",
    "WrongGroup",
    "decode_header",
    "encode_entry",
    "finish_swap",
    "load_state",
    "load_states",
    "verify",
]
