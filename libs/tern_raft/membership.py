"""Who belongs to the group, and who may vote: births, rebuilt nodes, nodes that have cut their last entry.

Peers greet each other with what they are on every new link (`hello`), before anything else. Rules:

- A group is born when all its members have seen each other unborn. Each keeps all incarnations, so a member that lost its directory
  and is founded again is recognised by whoever was there: it has to be rebuilt, and never founds a second group beside the survivor.
- Members that were restored from a backup are unborn with a log. They are born with those alone whose log ends with the same entry: were
  empty ones among them, a majority that has nothing could outvote who has the log.
- A node that forgot its votes (rebuilding) neither votes nor stands nor counts, until a READMIT entry that names its incarnation is
  committed by a majority without it. From then on it votes in terms above that entry's: whoever it may have promised its vote to
  before cannot win in those, since a majority has moved on without it.
- A node that cut a torn entry (doubtful) may lack what it has acknowledged. It votes again when something of the current term is committed
  on it, or only for the newest log among its peers, once it knows of each what it has, or that it has lost what it had: as long as no more
  than a minority has lost anything, one of the others holds what is committed. Reference: Raft, 5.4.1.
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
    """What a peer said of itself when the link opened, or since: its log ended with entry *end* (term, index); its *number*th greeting."""

    standing: Standing
    incarnation: bytes
    births: dict[str, bytes]
    end: tuple[int, int]
    version: int
    number: int
    # Where it answers HTTP; 0: it did not tell.
    http_port: int


class Membership:
    """Owner: the node's transport."""

    def __init__(self, me: str, others: list[str], votes: VoteFile, *, version: int, http_port: int = 0) -> None:
        """*version*: of the state machine that this release knows; *http_port*: where this node answers HTTP, 0 if nobody need know."""
        self._me, self._others, self._votes, self._version = me, others, votes, version
        self._http_port = http_port
        self._heard: dict[str, Hello] = {}
        self._greetings = 0

    @property
    def standing(self) -> Standing:
        """Of this node."""
        return self._votes.standing

    def hello(self, end: tuple[int, int]) -> dict[str, Any]:
        """The greeting of this moment, later than all before; *end*: term and index of the last entry."""
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
        """Whether *peer* has said nothing later on this link. A greeting that comes twice, the second time long after what it says
        was true, would make a member a node that is being copied, for as long as the link lives."""
        hello = self._heard.get(peer)
        return hello is None or message["number"] > hello.number

    def heard(self, peer: str, message: dict[str, Any], end: tuple[int, int]) -> bool:
        """*peer* has greeted a node whose log ends with *end* (term, index); whether this node's own standing has changed by that."""
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
        """The link to *peer* is gone, and what it said of itself with it."""
        self._heard.pop(peer, None)

    # Peers -----------------------------------------------------------------------------------------------------
    def has_heard(self, peer: str) -> bool:
        """Whether *peer* has greeted on its live link."""
        return peer in self._heard

    def counts(self, peer: str) -> bool:
        """Whether what *peer* acknowledges and grants is worth anything."""
        return self.standing_of(peer) in {Standing.MEMBER, Standing.DOUBTFUL}

    def has_log(self, peer: str) -> bool:
        """Whether *peer* has a log that entries could be added to: one that is copying its leader's has none."""
        hello = self._heard.get(peer)
        return hello is None or hello.end[1] > 0

    def standing_of(self, peer: str) -> Standing | None:
        """What *peer* is, None while it has not greeted."""
        hello = self._heard.get(peer)
        return hello.standing if hello is not None else None

    def incarnation_of(self, peer: str) -> bytes:
        """Of a peer that has greeted."""
        return self._heard[peer].incarnation

    def http_port_of(self, peer: str) -> int:
        """Where *peer* answers HTTP; 0 while it has not told."""
        hello = self._heard.get(peer)
        return hello.http_port if hello is not None else 0

    def version_of(self, peer: str) -> int:
        """The state machine's version that *peer* knows, 0 while it has not greeted."""
        hello = self._heard.get(peer)
        return hello.version if hello is not None else 0

    def common_version(self) -> int:
        """The state machine's version that all members know; 0 as long as one has not greeted on its live link, or is no whole member."""
        if any(self.standing_of(peer) is not Standing.MEMBER for peer in self._others):
            return 0
        return min([self._version, *map(self.version_of, self._others)])

    # Votes -----------------------------------------------------------------------------------------------------
    def may_vote(self, term: int, end: tuple[int, int]) -> bool:
        """Whether this node may vote, in *term*, for one (itself among them) whose log ends with *end* (term, index)."""
        if term <= self._votes.floor_term:
            return False
        if self.standing is Standing.DOUBTFUL:
            known = [hello for hello in self._heard.values() if hello.standing is not Standing.UNBORN]
            ends = [hello.end for peer, hello in self._heard.items() if self.counts(peer)]
            return len(known) == len(self._others) and end >= max(ends, default=end)
        return self.standing is Standing.MEMBER

    # Changes ---------------------------------------------------------------------------------------------------
    def readmitted(self, name: str, incarnation: bytes, term: int) -> bool:
        """A READMIT of *term* is committed; whether it was about this node."""
        is_mine = (name, incarnation) == (self._me, self._votes.incarnation)
        if not is_mine or self.standing is not Standing.REBUILDING:
            return False
        self._votes.be_readmitted(term)
        log.info("this node is a member again", extra={"votes_above_term": term})
        return True

    def settled(self) -> bool:
        """Something of the current term is committed on this node; whether it was in doubt until now."""
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
    """*end* of a log in which there is something; one with its genesis alone is as good as none."""
    return end if end[1] > 1 else (0, 0)


def is_hello(message: dict[str, Any]) -> bool:
    """Whether the fields of a greeting, whose types are right, have values that make sense."""
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
    """Name and incarnation again."""
    return str(body[INCARNATION_SIZE_BYTES:], "utf-8", "replace"), bytes(body[:INCARNATION_SIZE_BYTES])
