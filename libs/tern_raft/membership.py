"""Membership and the right to vote: births, rebuilt nodes, nodes that have cut their last entry.

Peers greet each other on every new link (`hello`), before anything else. Rules:
- A group is founded when all its members have met unborn. Each keeps all incarnations, so survivors
recognise a member that lost its directory and was founded again: it must be rebuilt, and never
founds a second group beside them.
- Members restored from a backup are unborn with a log. They found the group only with members whose
logs end with the same entry: otherwise a majority of empty ones could outvote the one with the log.
- A node that lost its votes (rebuilding) neither votes nor stands nor counts, until a READMIT entry
with its incarnation is committed by a majority without it. From then on it votes in terms above
that entry's: a candidate that it may have promised a vote to cannot win in those, since a majority
has moved on without it.
- A node that cut a torn entry (doubtful) may lack an entry that it has acknowledged. It votes again
when an entry of the current term is committed on it, or only for the newest log among its peers,
once each peer has greeted with its log's end or the loss of it: while only a minority has lost
anything, one of the others holds every committed entry. Reference: Raft, 5.4.1.
"""

import logging
from dataclasses import dataclass
from typing import Any

from tern_store import VoteFile
from tern_store.state.vote_file import INCARNATION_SIZE_BYTES, Standing

log = logging.getLogger(__name__)
PORT_MAX = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """A peer's latest greeting.
    *end*: term and index of its log's last entry; *number*: the count of its greetings.
    """

    standing: Standing
    incarnation: bytes
    births: dict[str, bytes]
    end: tuple[int, int]
    version: int
    number: int
    # Its HTTP port; 0: not sent.
    http_port: int


class Membership:
    """The members' greetings, and this node's standing. Owner: the node's transport."""

    def __init__(self, me: str, others: list[str], votes: VoteFile, *, version: int, http_port: int = 0) -> None:
        """*version*: of this release's state machine; *http_port*: this node's, 0 to send none."""
        self._me, self._others, self._votes, self._version = me, others, votes, version
        self._http_port = http_port
        self._heard: dict[str, Hello] = {}
        self._greetings = 0

    @property
    def standing(self) -> Standing:
        """This node's standing."""
        return self._votes.standing

    def hello(self, end: tuple[int, int]) -> dict[str, Any]:
        """The next greeting. *end*: term and index of the last entry."""
        self._greetings += 1
        return {
            "type": "hello",
            "standing": int(self._votes.standing),
            "incarnation": self._votes.incarnation,
            "births": self._votes.births,
            "last_log_term": end[0],
            "last_log_index": end[1],
            "version": self._version,
            "number": self._greetings,
            **({"http_port": self._http_port} if self._http_port else {}),
        }

    def is_news(self, peer: str, message: dict[str, Any]) -> bool:
        """Whether a greeting is newer than the last one of *peer* on this link.
        A repeated old greeting could otherwise make a node under copy a member for the link's whole
        life.
        """
        hello = self._heard.get(peer)
        return hello is None or message["number"] > hello.number

    def heard(self, peer: str, message: dict[str, Any], end: tuple[int, int]) -> bool:
        """Record *peer*'s greeting; True if it changes this node's own standing.
        *end*: term and index of this node's last entry.
        """
        self._heard[peer] = Hello(
            standing=Standing(message["standing"]),
            incarnation=message["incarnation"],
            births=message["births"],
            end=(message["last_log_term"], message["last_log_index"]),
            version=message["version"],
            number=message["number"],
            http_port=message.get("http_port", 0),
        )
        return self.standing is Standing.UNBORN and self._try_birth(end)

    def lost(self, peer: str) -> None:
        """Drop the greeting of *peer*, whose link is gone."""
        self._heard.pop(peer, None)

    # Peers ----------------------------------------------------------------------------------------
    def has_heard(self, peer: str) -> bool:
        """Whether *peer* has greeted on its live link."""
        return peer in self._heard

    def counts(self, peer: str) -> bool:
        """Whether acknowledgements and votes of *peer* count."""
        return self.standing_of(peer) in {Standing.MEMBER, Standing.DOUBTFUL}

    def has_log(self, peer: str) -> bool:
        """Whether *peer* has a log to append to; a node that copies its leader's has none."""
        hello = self._heard.get(peer)
        return hello is None or hello.end[1] > 0

    def standing_of(self, peer: str) -> Standing | None:
        """The standing of *peer*, None before its greeting."""
        hello = self._heard.get(peer)
        return hello.standing if hello is not None else None

    def incarnation_of(self, peer: str) -> bytes:
        """The incarnation of a peer that has greeted."""
        return self._heard[peer].incarnation

    def http_port_of(self, peer: str) -> int:
        """The HTTP port of *peer*; 0 if it has sent none."""
        hello = self._heard.get(peer)
        return hello.http_port if hello is not None else 0

    def version_of(self, peer: str) -> int:
        """The state machine's version at *peer*; 0 before its greeting."""
        hello = self._heard.get(peer)
        return hello.version if hello is not None else 0

    def common_version(self) -> int:
        """The state machine's version that all members support.
        0 if one has not greeted on its live link or is no full member.
        """
        if any(self.standing_of(peer) is not Standing.MEMBER for peer in self._others):
            return 0
        return min([self._version, *map(self.version_of, self._others)])

    # Votes ----------------------------------------------------------------------------------------
    def may_vote(self, term: int, end: tuple[int, int]) -> bool:
        """Whether this node may vote in *term* for a node (itself included) whose log ends with
        *end*.
        *end*: (term, index).
        """
        if term <= self._votes.floor_term:
            return False
        if self.standing is Standing.DOUBTFUL:
            known = [hello for hello in self._heard.values() if hello.standing is not Standing.UNBORN]
            ends = [hello.end for peer, hello in self._heard.items() if self.counts(peer)]
            return len(known) == len(self._others) and end >= max(ends, default=end)
        return self.standing is Standing.MEMBER

    # Changes --------------------------------------------------------------------------------------
    def readmitted(self, name: str, incarnation: bytes, term: int) -> bool:
        """Handle a committed READMIT of *term*; True if it readmits this node."""
        is_mine = (name, incarnation) == (self._me, self._votes.incarnation)
        if not is_mine or self.standing is not Standing.REBUILDING:
            return False
        self._votes.be_readmitted(term)
        log.info("this node is a member again", extra={"votes_above_term": term})
        return True

    def settled(self) -> bool:
        """Handle a commit in the current term; True if this node was in doubt until now."""
        if self.standing is not Standing.DOUBTFUL:
            return False
        self._votes.be_settled()
        log.info("what stood in the place of the torn entry is known: this node votes again")
        return True

    def _try_birth(self, end: tuple[int, int]) -> bool:
        mine = self._votes.incarnation
        for peer, hello in self._heard.items():
            if hello.standing in {Standing.MEMBER, Standing.DOUBTFUL}:
                if hello.births.get(self._me) == mine and set(hello.births) == {self._me, *self._others}:
                    self._votes.be_born(hello.births)
                    log.info("the group is born", extra={"heard_from": peer})
                else:
                    self._votes.forget(mine)
                    log.warning("the group was born without this directory: it will be rebuilt", extra={"peer": peer})
                return True
        unborn = [hello for hello in self._heard.values() if hello.standing is Standing.UNBORN]
        if len(unborn) < len(self._others):
            return False
        ends = {self._me: _log_end(end)} | {peer: _log_end(hello.end) for peer, hello in self._heard.items()}
        if len(set(ends.values())) > 1:
            log.warning("the group is not born: restore all its members from the same backup", extra={"log_ends": ends})
            return False
        births = {self._me: mine} | {peer: hello.incarnation for peer, hello in self._heard.items()}
        self._votes.be_born(births)
        log.info("the group is born", extra={"members": sorted(births)})
        return True


def _log_end(end: tuple[int, int]) -> tuple[int, int]:
    """The end of a log; one with its genesis alone counts as empty."""
    return end if end[1] > 1 else (0, 0)


def is_hello(message: dict[str, Any]) -> bool:
    """Whether the fields of a greeting, whose types are right, have valid values."""
    births = message["births"]
    return (
        message["standing"] in set(Standing)
        and message["version"] >= 1
        and message.get("http_port", 0) <= PORT_MAX
        and len(message["incarnation"]) == INCARNATION_SIZE_BYTES
        and all(type(name) is str and type(birth) is bytes for name, birth in births.items())
        and all(len(birth) == INCARNATION_SIZE_BYTES for birth in births.values())
    )


def readmit_parts(name: str, incarnation: bytes) -> list[bytes | bytearray | memoryview]:
    """The body of a READMIT entry."""
    return [incarnation, name.encode()]


def read_readmit(body: memoryview) -> tuple[str, bytes]:
    """Decode name and incarnation."""
    return str(body[INCARNATION_SIZE_BYTES:], "utf-8", "replace"), bytes(body[:INCARNATION_SIZE_BYTES])
