"""The replicated log: pysyncobj's consensus core with our journal, transport and apply.

This package alone imports pysyncobj.
"""

from tern_raft.links import PeerLinks
from tern_raft.node import RaftConfig, RaftNode
from tern_raft.process import DiskThread, ProcessRuntime
from tern_raft.runtime import EXIT_BROKEN, EXIT_FSYNC_FAILED, Disk, Links, PeerListener, PeerStatus, Runtime
from tern_raft.watchdog import Watchdog

__all__ = [
    "EXIT_BROKEN",
    "EXIT_FSYNC_FAILED",
    "Disk",
    "DiskThread",
    "Links",
    "PeerLinks",
    "PeerListener",
    "PeerStatus",
    "ProcessRuntime",
    "RaftConfig",
    "RaftNode",
    "Runtime",
    "Watchdog",
]
