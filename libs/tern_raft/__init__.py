"""The replicated log: pysyncobj's consensus core behind our journal, our transport, our apply. Only importer of pysyncobj."""

from tern_raft.disk import DiskThread, end_after_failed_sync
from tern_raft.node import EXIT_BROKEN, PeerStatus, RaftConfig, RaftNode, end_process

__all__ = ["EXIT_BROKEN", "DiskThread", "PeerStatus", "RaftConfig", "RaftNode", "end_after_failed_sync", "end_process"]
