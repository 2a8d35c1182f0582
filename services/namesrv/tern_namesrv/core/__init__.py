"""The name server's decisions, without clock, network or files."""

from tern_namesrv.core.registry import NODES_MAX, LiveNode, Registry

__all__ = ["NODES_MAX", "LiveNode", "Registry"]
