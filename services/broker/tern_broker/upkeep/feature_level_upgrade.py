"""The leader's part in raising the group's feature level: an entry raises it when every member is
connected and supports more.

Law: a member without a live greeting to this leader, or that is not a whole member, counts as
unable to support it. Owner: the core loop.
"""

import logging
from collections.abc import Callable
from typing import Protocol

from tern_store.files import is_lack
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind, entry_parts
from tern_wire.link.requests import Parts

log = logging.getLogger(__name__)


class Members(Protocol):
    """The part of consensus that the upgrade needs (`RaftNode` implements it)."""

    @property
    def is_serving(self) -> bool:
        """Whether this node leads and takes requests."""

    @property
    def is_yielding(self) -> bool:
        """Whether leadership is being handed over."""

    @property
    def applied_index(self) -> int:
        """The last applied entry."""

    @property
    def common_version(self) -> int:
        """The version that all members support; 0: unknown for some."""


class FeatureLevelUpgrade:
    """Of one node."""

    def __init__(
        self,
        raft: Members,
        *,
        level: Callable[[], int],
        now_ms: Callable[[], int],
        propose: Callable[[Parts, bool], tuple[int, int]],
    ) -> None:
        """*level* and *now_ms*: from the state machine; *propose* makes an entry (body, urgent) and
        returns its index and term.
        """
        self._raft, self._level, self._now_ms, self._propose = raft, level, now_ms, propose
        # Index of the last RAISE: it is applied, or lost with its leader, before there is another.
        self._asked_index = 0

    def step(self) -> None:
        """Propose a RAISE if possible. Called every few ms on every node."""
        raft = self._raft
        if not raft.is_serving:
            # Another entry may have taken the place of the RAISE. Its fate is known when this node
            # leads again.
            self._asked_index = 0
            return
        if raft.is_yielding or raft.applied_index < self._asked_index:
            return
        known, level = raft.common_version, self._level()
        if known <= level:
            return
        payload: Parts = [encode_msgpack({"level": known})]
        try:
            self._asked_index, _ = self._propose(entry_parts(self._now_ms(), [(CommandKind.RAISE, payload)]), True)
        except OSError as error:
            if not is_lack(error):
                raise
            return  # a full disk has room again some time
        log.info(
            "every member supports a newer state machine: the group's level rises", extra={"from": level, "to": known}
        )
