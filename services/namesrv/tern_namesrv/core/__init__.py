"""The name server's decisions, without clock, network or files."""

from tern_namesrv.core.configuration import ORDER_NAMESPACE, Configuration, configuration_of
from tern_namesrv.core.operator_state import OperatorState
from tern_namesrv.core.registration_rules import NODES_MAX
from tern_namesrv.core.registry import LiveNode, Registry

__all__ = [
    "NODES_MAX",
    "ORDER_NAMESPACE",
    "Configuration",
    "LiveNode",
    "OperatorState",
    "Registry",
    "configuration_of",
]
