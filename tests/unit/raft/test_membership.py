"""Births, rebuilt nodes, nodes in doubt: who may vote, and who counts."""

from pathlib import Path

from tern_raft.membership import Membership, is_hello, read_readmit, readmit_parts
from tern_store import Genesis, VoteFile
from tern_store.state.vote_file import Standing
from tests.support.files.faulty_files import FaultyFiles

NAMES = ("a", "b", "c")
GROUP = Genesis(b"g" * 16, NAMES, 65536)
DIRECTORY = Path("/data")


class Node:
    """A member with its disk; *number* tells its directories apart."""

    def __init__(self, name: str, *, bootstrap: bool = True, files: FaultyFiles | None = None, number: int = 0) -> None:
        self.name, self.files = name, files or FaultyFiles()
        incarnation = f"{name}{number}".encode().ljust(16, b"-")
        self.votes = VoteFile.open(
            DIRECTORY, bootstrap=bootstrap, group=GROUP, incarnation=incarnation, files=self.files
        )
        self.membership = Membership(name, [other for other in NAMES if other != name], self.votes, version=2)
        self.end = (0, 1)

    @property
    def standing(self) -> Standing:
        """As the file says."""
        return self.votes.standing


def greet(*nodes: Node) -> None:
    """Every one of *nodes* says hello to every other, until nothing changes any more."""
    for _ in range(3):
        for one in nodes:
            for other in nodes:
                if one is not other:
                    other.membership.heard(one.name, one.membership.hello(one.end), other.end)


def born() -> tuple[Node, Node, Node]:
    """A group whose members have met."""
    nodes = Node("a"), Node("b"), Node("c")
    greet(*nodes)
    assert {node.standing for node in nodes} == {Standing.MEMBER}
    return nodes


def test_a_group_is_born_when_all_have_met_and_not_before() -> None:
    """Two of three wait; nobody votes until then."""
    a, b, c = Node("a"), Node("b"), Node("c")
    greet(a, b)
    assert (a.standing, b.standing) == (Standing.UNBORN, Standing.UNBORN)
    assert not a.membership.may_vote(1, (9, 9))
    greet(a, b, c)
    assert {node.standing for node in (a, b, c)} == {Standing.MEMBER}
    assert a.votes.births == b.votes.births == c.votes.births
    assert a.membership.may_vote(1, (0, 1))


def test_a_member_that_died_during_the_birth_is_born_by_those_who_saw_it() -> None:
    """It was seen unborn by all: whoever is born already tells it."""
    a, b, c = Node("a"), Node("b"), Node("c")
    greet(a, b)
    a.membership.heard("c", c.membership.hello(c.end), a.end)
    assert (a.standing, c.standing) == (Standing.MEMBER, Standing.UNBORN)
    again = Node("c", files=c.files)
    greet(a, again)
    assert again.standing is Standing.MEMBER


def test_two_wiped_nodes_never_found_a_new_group_beside_the_survivor() -> None:
    """Even if they are started as if to found one: the survivor knows that they were others."""
    survivor, _, _ = born()
    b, c = Node("b", number=1), Node("c", number=1)
    greet(b, c)
    assert (b.standing, c.standing) == (Standing.UNBORN, Standing.UNBORN), "without the third they cannot"
    greet(survivor, b, c)
    assert (b.standing, c.standing) == (Standing.REBUILDING, Standing.REBUILDING)
    assert not any(node.membership.may_vote(term, (9, 9)) for node in (b, c) for term in (1, 5))
    assert not survivor.membership.counts("b")


def test_a_directory_without_votes_is_rebuilt_and_never_an_unborn_one() -> None:
    """No --bootstrap: it waits for the group, whatever the others are."""
    a, b, c = Node("a"), Node("b"), Node("c", bootstrap=False)
    greet(a, b, c)
    assert (a.standing, b.standing, c.standing) == (Standing.UNBORN, Standing.UNBORN, Standing.REBUILDING)


def test_a_rebuilt_node_votes_only_in_terms_above_its_readmission() -> None:
    """And only if the readmission names this very directory."""
    a, b, _ = born()
    c = Node("c", bootstrap=False, number=1)
    greet(a, b, c)
    assert not a.membership.counts("c")
    assert not c.membership.may_vote(8, (7, 100))
    assert not c.membership.readmitted("b", c.votes.incarnation, 7)
    assert not c.membership.readmitted("c", b"c0".ljust(16, b"-"), 7)
    assert c.membership.readmitted("c", c.votes.incarnation, 7)
    assert [c.membership.may_vote(term, (7, 100)) for term in (6, 7, 8)] == [False, False, True]
    greet(a, b, c)
    assert a.membership.counts("c")
    again = Node("c", files=c.files)
    assert [again.membership.may_vote(term, (7, 100)) for term in (7, 8)] == [False, True]


def test_a_node_in_doubt_votes_for_the_newest_log_of_all_peers_or_not_at_all() -> None:
    """It may have acknowledged what it cut: only who has at least what any peer has may lead with its vote."""
    a, b, c = born()
    c.votes.doubt()
    doubtful = Node("c", files=c.files)
    a.end, b.end, doubtful.end = (3, 10), (3, 9), (3, 9)
    greet(a, doubtful)
    assert not doubtful.membership.may_vote(4, (3, 10)), "b may have more"
    greet(a, b, doubtful)
    assert not doubtful.membership.may_vote(4, b.end)
    assert not doubtful.membership.may_vote(4, doubtful.end), "not even for itself"
    assert doubtful.membership.may_vote(4, a.end)
    doubtful.membership.lost("b")
    assert not doubtful.membership.may_vote(4, a.end)
    assert doubtful.membership.settled()
    assert doubtful.membership.may_vote(4, (3, 9))
    assert a.membership.counts("c"), "its acks were true all the time"


def test_three_nodes_in_doubt_elect_the_newest_log() -> None:
    """A power cut tore all of them: the group does not stand still for ever."""
    nodes = born()
    for number, node in enumerate(nodes):
        node.votes.doubt()
        node.end = (3, 9 + number)
    greet(*nodes)
    allowed = [[voter.membership.may_vote(4, candidate.end) for voter in nodes] for candidate in nodes]
    assert [sum(row) * 2 > len(nodes) for row in allowed] == [False, False, True]


def test_what_all_members_know_is_known_only_while_all_are_there() -> None:
    """A rolling upgrade: a link that drops for a moment does not make its node know more."""
    a, b, c = born()
    greet(a, b, c)
    assert a.membership.common_version() == 2
    old = b.membership.hello(b.end) | {"version": 1}
    a.membership.heard("b", old, a.end)
    assert (a.membership.common_version(), a.membership.version_of("b"), a.membership.version_of("c")) == (1, 1, 2)
    a.membership.lost("b")
    assert (a.membership.common_version(), a.membership.version_of("b")) == (0, 0)
    a.membership.heard("b", b.membership.hello(b.end), a.end)
    assert a.membership.common_version() == 2


def test_who_is_being_rebuilt_knows_nothing_yet() -> None:
    """It may be started with another release before it is a member again."""
    a, b, c = born()
    b.votes.forget(b"z" * 16)
    greet(a, b, c)
    assert a.membership.version_of("b") == 2
    assert a.membership.common_version() == 0


def test_a_node_tells_where_it_answers_http_if_anybody_is_to_know() -> None:
    """0 stands for a peer that does not say, as releases before do not."""
    a, b, _ = born()
    assert "http_port" not in b.membership.hello(b.end)
    assert a.membership.http_port_of("b") == 0
    told = b.membership.hello(b.end) | {"http_port": 9_999}
    assert is_hello(told)
    a.membership.heard("b", told, a.end)
    assert a.membership.http_port_of("b") == 9_999
    assert not is_hello(told | {"http_port": 65_536})
    a.membership.lost("b")
    assert a.membership.http_port_of("b") == 0


def test_a_readmission_says_who() -> None:
    """Name and incarnation survive the log."""
    raw = b"".join(bytes(part) for part in readmit_parts("broker-a-1", b"i" * 16))
    assert read_readmit(memoryview(raw)) == ("broker-a-1", b"i" * 16)


def test_a_node_in_doubt_does_not_wait_for_one_that_has_lost_what_it_had() -> None:
    """One member is rebuilt, another cut its end: no more than a minority has lost anything, so the third may lead."""
    a, b, c = born()
    c.votes.doubt()
    doubtful = Node("c", files=c.files)
    a.end, doubtful.end = (3, 54), (3, 53)
    greet(a, doubtful)
    assert not doubtful.membership.may_vote(4, a.end)
    b.votes.forget(b"z" * 16)
    greet(a, b, doubtful)
    assert doubtful.membership.may_vote(4, a.end)
    assert not doubtful.membership.may_vote(4, doubtful.end)
    assert not b.membership.may_vote(4, a.end)


def test_a_node_that_copies_its_leader_s_log_has_none_that_entries_could_be_added_to() -> None:
    """It greets so; before it has greeted nothing is known against it."""
    a, b, _ = born()
    assert a.membership.has_log("b")
    a.membership.heard("b", b.membership.hello((0, 0)), a.end)
    assert not a.membership.has_log("b")
    a.membership.lost("b")
    assert a.membership.has_log("b")


def restored(*numbers: int, end: tuple[int, int] = (3, 40)) -> list[Node]:
    """Members whose directories came out of a backup whose log ends with *end*; *numbers* tell their directories apart."""
    nodes = []
    for name, number in zip(NAMES, numbers, strict=False):
        files = FaultyFiles()
        files.makedirs(DIRECTORY)
        incarnation = f"{name}{number}".encode().ljust(16, b"-")
        VoteFile.restore(DIRECTORY, group=GROUP, incarnation=incarnation, term=end[0] + 1, files=files)
        node = Node(name, bootstrap=False, files=files)
        node.end = end
        nodes.append(node)
    return nodes


def test_members_restored_from_one_backup_found_their_group_again() -> None:
    """All of them, and not before the last has come; votes are for terms above the cut's."""
    a, b, c = restored(7, 8, 9)
    greet(a, b)
    assert {a.standing, b.standing} == {Standing.UNBORN}
    assert not a.membership.may_vote(9, (3, 40))
    greet(a, b, c)
    assert {node.standing for node in (a, b, c)} == {Standing.MEMBER}
    assert a.votes.births == b.votes.births == c.votes.births
    assert [a.membership.may_vote(term, (3, 40)) for term in (3, 4, 5)] == [False, False, True]


def test_a_restored_member_founds_nothing_with_empty_ones() -> None:
    """Two that have nothing would be a majority, and what was restored would be cut away."""
    (a,) = restored(7)
    b, c = Node("b"), Node("c")
    greet(a, b, c)
    assert {node.standing for node in (a, b, c)} == {Standing.UNBORN}


def test_members_restored_from_different_backups_found_nothing() -> None:
    """Who has the older one could be elected by another of its kind."""
    a, b, _ = restored(7, 8, 9)
    _, _, c = restored(7, 8, 9, end=(3, 41))
    greet(a, b, c)
    assert {node.standing for node in (a, b, c)} == {Standing.UNBORN}


def test_a_member_restored_beside_a_living_group_is_taken_back_as_a_rebuilt_one() -> None:
    """It has forgotten its votes and, maybe, what it acknowledged: it neither votes nor counts before."""
    _, b, c = born()
    (a,) = restored(7)
    greet(a, b, c)
    assert a.standing is Standing.REBUILDING
    assert not a.membership.may_vote(9, (3, 40))
    assert not b.membership.counts("a")
