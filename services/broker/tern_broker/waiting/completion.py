"""Answers to requests that wait at a broker, one by one: `tern_remoting.tell`, which lets errors
pass that must end the node.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import tern_remoting
from tern_broker.fatal_stop import DAMAGE
from tern_store.files import NO_ROOM
from tern_wire.errors import DiskFull, NodeLacks, TernError

Answer = TypeVar("Answer")


def tell(answer: Callable[[], object], refuse: Callable[[TernError], object]) -> None:
    """Call *answer*; if it raises, call *refuse* with the problem. Damage of the log or of a file
    passes through.
    """
    tern_remoting.tell(answer, refuse, ends=DAMAGE)


def wake(hear: Callable[[Answer | TernError], object], answer: Answer | TernError) -> None:
    """Call *hear* with *answer*; if it raises, call it with the problem."""
    tell(partial(hear, answer), hear)


def lack_of(error: OSError, *, node: str, broker_group: str) -> TernError:
    """Return the answer to a request for which the kernel has refused *node* a resource; no part of
    the request was done.
    """
    if error.errno in NO_ROOM:
        return DiskFull(broker_group=broker_group)
    return NodeLacks(node=node, lack=error.strerror or type(error).__name__)
