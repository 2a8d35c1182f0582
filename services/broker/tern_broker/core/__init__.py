"""The broker's decisions: pure, deterministic, total. Time and ids are arguments; nothing in this
package waits or reads a file.
"""

from tern_broker.core.applied import Applied
from tern_broker.core.delivery.delivery import Delivery
from tern_broker.core.delivery.picking import Pick, Picker, ReceiveRequest
from tern_broker.core.machine import StateMachine
from tern_broker.core.topics import Group, Topic

__all__ = ["Applied", "Delivery", "Group", "Pick", "Picker", "ReceiveRequest", "StateMachine", "Topic"]
