"""Connections by address: bounded, counted down, and forgotten."""

import pytest

from tern_service.connections.table import ConnectionTable, address_of


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", ""),
        ("127.9.9.9", ""),
        ("::1", ""),
        ("::ffff:127.0.0.1", ""),
        ("", ""),
        ("unix", ""),
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_an_address_is_what_one_host_has(host: str, address: str) -> None:
    """Loopback is none; of IPv6 one host has 64 bits."""
    assert address_of(host) == address


def test_an_address_has_a_limit_and_others_have_theirs() -> None:
    """The third is one too many until one goes."""
    table = ConnectionTable()
    assert table.enter("192.0.2.1", 2) == table.enter("192.0.2.1", 2) == "192.0.2.1"
    assert table.enter("192.0.2.1", 2) is None
    assert table.enter("192.0.2.2", 2) == "192.0.2.2"
    table.leave("192.0.2.1")
    assert table.enter("192.0.2.1", 2) == "192.0.2.1"
    for address in ("192.0.2.1", "192.0.2.1", "192.0.2.2"):
        table.leave(address)
    assert len(table) == 0


def test_loopback_has_none() -> None:
    """And nothing is kept for it."""
    table = ConnectionTable()
    assert [table.enter("127.0.0.1", 1) for _ in range(3)] == ["", "", ""]
    assert len(table) == 0


class Timer:
    """A connection's timer while it waits for a request."""

    def __init__(self, since_s: float) -> None:
        self._since_s = since_s

    def when(self) -> float:
        """When it would be closed."""
        return self._since_s + 75


class Connection:
    """As close_idlest sees one: of *host*, idle since *since_s* (None: at work), or with a request that is not whole since then."""

    timeout_keep_alive = 75

    def __init__(
        self, table: ConnectionTable, host: str, since_s: float | None, arriving_since_s: float | None = None
    ) -> None:
        self.client, self._table, self.arriving_since_s = (host, 1), table, arriving_since_s
        self.timeout_keep_alive_task = None if since_s is None else Timer(since_s)
        self.is_closed, self.transport = False, self
        table.known += 1

    def give_way(self) -> None:
        """It is closed and counts no longer; the loop tells that later."""
        self._table.known -= 1
        self.is_closed = True

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self.is_closed


def closed(
    table: ConnectionTable, connections: list[Connection], newcomer: str, now_s: float = 100.0
) -> list[tuple[str, int]]:
    """Which are closed for one more from *newcomer*: host and number."""
    table.close_idlest(connections, newcomer, len(connections), now_s)
    return [(one.client[0], number) for number, one in enumerate(connections) if one.is_closed]


def test_for_a_newcomer_the_idlest_connection_goes_and_none_that_is_at_work() -> None:
    """Behind a reverse proxy all have one address, and that is fine."""
    table = ConnectionTable()
    connections = [Connection(table, "127.0.0.1", since_s) for since_s in (None, 50.0, 40.0, 99.5, None)]
    assert closed(table, connections, "127.0.0.1") == [("127.0.0.1", 2)]
    assert table.known == 4


def test_who_has_most_connections_makes_room_and_not_who_idles_longest() -> None:
    """One that keeps thousands open costs those nothing that keep two; loopback is an address here as any other."""
    table = ConnectionTable()
    connections = [Connection(table, "192.0.2.1", 10.0) for _ in range(2)]
    connections += [Connection(table, "127.0.0.1", 50.0 + number) for number in range(6)]
    assert closed(table, connections, "192.0.2.2") == [("127.0.0.1", 2)]


def test_who_has_most_and_is_at_work_with_all_of_them_takes_no_others() -> None:
    """The others' idle ones stay, and its newcomers are refused; a newcomer of who has few finds one that has more than it."""
    table = ConnectionTable()
    connections = [Connection(table, "192.0.2.1", None) for _ in range(6)]
    connections += [Connection(table, "192.0.2.2", 10.0) for _ in range(2)]
    assert closed(table, connections, "192.0.2.1") == []
    assert closed(table, connections, "192.0.2.3", 101.0) == [("192.0.2.2", 6)]


def test_whole_requests_stay_and_those_that_do_not_come_give_way_to_who_has_fewer() -> None:
    """Nothing is idle: the oldest of the heads whose bodies do not come, of an address that has more; none of the newcomer's own address."""
    table = ConnectionTable()
    connections = [Connection(table, "192.0.2.1", None, since_s) for since_s in (None, 50.0, 40.0, 99.9)]
    assert closed(table, connections, "192.0.2.1") == []
    assert closed(table, connections, "192.0.2.2", 101.0) == [("192.0.2.1", 2)]


def test_newcomers_of_one_moment_close_a_64th_and_not_each_of_them_a_64th() -> None:
    """What is being closed counts as gone at once, although the loop tells its end later."""
    table = ConnectionTable()
    connections = [Connection(table, "127.0.0.1", float(number % 90)) for number in range(640)]
    assert all(table.close_idlest(connections, "127.0.0.1", 640, 100.0) for _ in range(10))
    assert sum(one.is_closed for one in connections) == 640 // 64
    table.known += 10
    assert not table.close_idlest(connections, "127.0.0.1", 640, 100.05)
    assert table.close_idlest(connections, "127.0.0.1", 640, 100.2)
