"""Answers to those who wait at a broker, one by one: `tern_remoting.tell`, through which whatever must end the node passes."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import tern_remoting
from tern_broker.ending import DAMAGE
from tern_store.files import NO_ROOM
from tern_wire.errors import DiskFull, NodeLacks, TernError

Answer = TypeVar("Answer")


def tell(answer: Callable[[], object], refuse: Callable[[TernError], object]) -> None:
    """Call *answer*; if that raises, call *refuse* with the problem. Damage of the log or of a file passes through."""
    tern_remoting.tell(answer, refuse, ends=DAMAGE)


def wake(hear: Callable[[Answer | TernError], object], answer: Answer | TernError) -> None:
    """As `tell`, of somebody whose *hear* takes answers and problems alike."""
    tell(partial(hear, answer), hear)


def lack_of(error: OSError, *, node: str, broker_group: str) -> TernError:
    """What to answer when the kernel has refused *node* what a request needs; nothing of it was done."""
    if error.errno in NO_ROOM:
        return DiskFull(broker_group=broker_group)
    return NodeLacks(node=node, lack=error.strerror or type(error).__name__)
