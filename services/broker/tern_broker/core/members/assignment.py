"""The assignment of a topic's queues to the members of a consumer group: RocketMQ's strategies,
with RocketMQ's results.

Law: a function of its arguments, independent of their order: queues are sorted by broker group and
number, members by id (RocketMQ sorts both before it divides). No queue has two members; only
`by-config` and `by-machine-room` may leave queues without one, as in RocketMQ. With 8 queues and
the members a, b, c:

     averagely            a 0 1 2   b 3 4 5   c 6 7
     averagely-by-circle  a 0 3 6   b 1 4 7   c 2 5
     consistent-hash      about as many for each; a leaving member moves at most 2/n of the queues

RocketMQ's consistent hash is a ring. On a ring a member may have many times its share, and no ring
of members' names can bound the number of queues that move: names collide. Here the queues belong to
numbered *seats*, 0 to n - 1, and each member has a seat. Seat k takes its share from the seats
before it, so that only the last seat's queues move when there is one seat less. A member that
leaves gives its seat to the member on the last one.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b

from tern_wire.routing.membership import Strategy, room_of

Assignment = dict[str, list[str]]


def assign(
    strategy: Strategy,
    queues: Sequence[str],
    members: Sequence[str],
    *,
    seats: Sequence[str] = (),
    rooms: Mapping[str, str] | None = None,
    configured: Mapping[str, Sequence[str]] | None = None,
) -> Assignment:
    """Return the queues (`broker-a:3`) of each member, in order; a member without queues has [].

    *seats*: for `consistent-hash`, members in the order of their seats; unnamed members follow
    behind them. *rooms*: each member's machine room, "" for none. *configured*: for `by-config`,
    the queues that each member requests.
    """
    ordered = sorted(set(queues), key=queue_order)
    names = sorted(set(members))
    if not names:
        return {}
    match strategy:
        case Strategy.AVERAGELY:
            return _averagely(ordered, names)
        case Strategy.AVERAGELY_BY_CIRCLE:
            return {name: ordered[number :: len(names)] for number, name in enumerate(names)}
        case Strategy.BY_CONFIG:
            return _by_config(ordered, names, configured or {})
        case Strategy.BY_MACHINE_ROOM:
            return _by_machine_room(ordered, names, rooms or {})
        case Strategy.MACHINE_ROOM_NEARBY:
            return _machine_room_nearby(ordered, names, rooms or {})
        case Strategy.CONSISTENT_HASH:
            return _consistent_hash(ordered, names, seats)


def queue_order(queue: str) -> tuple[str, int]:
    """Return a sort key by which `broker-a:10` comes after `broker-a:9`, as RocketMQ orders its
    message queues.

    The order is total: text without a number sorts first.
    """
    broker_group, _, number = queue.rpartition(":")
    return (broker_group, int(number)) if number.isdecimal() else (queue, -1)


def _averagely(queues: list[str], members: list[str]) -> Assignment:
    """Assign a contiguous range to each member; the first `len(queues) % len(members)` get one
    queue more.
    """
    share, more = divmod(len(queues), len(members))
    assigned, start = {}, 0
    for number, member in enumerate(members):
        end = start + share + (number < more)
        assigned[member] = queues[start:end]
        start = end
    return assigned


def _by_config(queues: list[str], members: list[str], configured: Mapping[str, Sequence[str]]) -> Assignment:
    """Assign the queues that each member requests.

    A queue that two members request would be read by both in RocketMQ; here the first member gets
    it.
    """
    free = set(queues)
    assigned: Assignment = {}
    for member in members:
        wanted = free.intersection(configured.get(member, ()))
        free -= wanted
        assigned[member] = sorted(wanted, key=queue_order)
    return assigned


def _by_machine_room(queues: list[str], members: list[str], rooms: Mapping[str, str]) -> Assignment:
    """Assign the queues of the rooms that members name to all members; queues of other rooms stay
    unread, as in RocketMQ.

    Each member has a contiguous range; the remainder is at the end, one queue for each of the first
    members.
    """
    named = {rooms.get(member, "") for member in members}
    inside = [queue for queue in queues if room_of(queue) in named]
    share, more = divmod(len(inside), len(members))
    left_over = inside[share * len(members) :]
    return {
        member: inside[share * number : share * (number + 1)]
        + (left_over[number : number + 1] if number < more else [])
        for number, member in enumerate(members)
    }


def _machine_room_nearby(queues: list[str], members: list[str], rooms: Mapping[str, str]) -> Assignment:
    """Divide a room's queues averagely among its members; queues of a room without members among
    all members.
    """
    assigned: Assignment = {member: [] for member in members}
    for room, inside in _grouped(queues, room_of).items():
        near = [member for member in members if rooms.get(member, "") == room]
        for member, share in _averagely(inside, near or members).items():
            assigned[member].extend(share)
    return {member: sorted(share, key=queue_order) for member, share in assigned.items()}


def _grouped(items: list[str], key: Callable[[str], str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def _consistent_hash(queues: list[str], members: list[str], seats: Sequence[str]) -> Assignment:
    """Assign queues so that loads differ by at most one, and the last seat has one of the smallest
    loads.

    So no more than 2/n (rounded up) of the queues move with a member that leaves: its own and the
    last seat's.
    """
    known = set(members)
    # A dict: each member once, in the order of seats.
    order = list(dict.fromkeys(member for member in (*seats, *members) if member in known))
    # By hash, so that a seat's queues come from all broker groups.
    shares: list[list[str]] = [sorted(queues, key=_spread)]
    most = [(-len(queues), 0)]
    for seat in range(1, len(order)):
        share: list[str] = []
        # Take from the seat with the largest load; it has at least one more queue than the new seat
        # ends with.
        for _ in range(len(queues) // (seat + 1)):
            load, giver = most[0]
            share.append(shares[giver].pop())
            heapq.heapreplace(most, (load + 1, giver))
        shares.append(share)
        heapq.heappush(most, (-len(share), seat))
    assigned = {member: sorted(share, key=queue_order) for member, share in zip(order, shares, strict=True)}
    return {member: assigned[member] for member in members}


def _spread(queue: str) -> tuple[bytes, str]:
    return blake2b(queue.encode(), digest_size=8).digest(), queue
