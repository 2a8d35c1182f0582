"""Transactions: they end once, whole, and not before somebody has ended them; none that was begun is forgotten.

Exactly: 1. Who begins is told one number for all messages of a transaction, which no other one has; a key's repeats are told the same one, and
PREPARED is told once. 2. No message of it is received, pulled, found by its id, or held by a node at the end, unless a commit of it had begun;
the one that was told that it ended it, if there is one. 3. Whoever is told an outcome (ends, people, nodes at the end) is told the same one,
with the same facts, which are true; ENDED is told once; somebody had asked for it; and nobody who asks later is told anything else. 4. On every
node at the end it is visible whole, each message once, or not at all (but for what retention has dropped), as its outcome says. Once
one of its messages was seen, or its commit was answered, no queue is shown ending before another one, and each is found by its id. 5. A number
that a client was ever told is open, parked or ended on every node at the end, with its messages, and nobody is told that it is unknown.
"""

from collections import Counter
from collections.abc import Iterator

from tern_wire.errors import TransactionUnknown
from tern_wire.link.rows import KEYS_FULL, PREPARED, PREPARED_BEFORE
from tern_wire.transactions import (
    BY_TEXTS,
    COMMIT,
    COMMITTED,
    ENDED,
    ENDED_BEFORE,
    EXPIRED_BEFORE,
    ROLLBACK,
    ROLLED_BACK,
    TRANSACTION_UNKNOWN,
)
from tests.sim.checkers.transaction_facts import Deal, TransactionFacts, told_outcome, transaction_facts
from tests.sim.clients.bodies import message_id
from tests.sim.history.history import LATER, EndState, History, NodeEnd, Offsets, Operation, Pull, Receive, Violation
from tests.sim.history.transaction_values import Describe, Search

_OUTCOMES = {COMMITTED: COMMIT, ROLLED_BACK: ROLLBACK}
_TOLD = frozenset({PREPARED, PREPARED_BEFORE})


def check(history: History, end: EndState) -> list[Violation]:
    """Every violation; O(operations * log operations + messages * nodes)."""
    facts = transaction_facts(history, end)
    if not facts.begins:
        return []
    # Every message of a transaction -> the name of the first one of it.
    owners = {half.name: name for name in facts.begins for half in facts.halves(name)}
    deals = {deal.name: deal for deal in facts.deals.values() if deal.name}
    seen = _Seen(history, owners)
    found = [*_begun(facts), *_unknown(history, facts)]
    for deal in facts.deals.values():
        found += [f"{deal.number} ({deal.name}): {text}" for text in _ended(facts, deal, end)]
    found += _early(facts, deals, seen)
    for node in end.nodes:
        found += [f"{node.node}: {text}" for text in (*_whole(facts, deals, owners, node), *_kept(facts, node))]
    found += _torn(history, facts, deals, seen, end)
    return [Violation("transactions", text) for text in found]


# Begins -----------------------------------------------------------------------------------------------------------
def _begun(facts: TransactionFacts) -> Iterator[str]:
    numbers: dict[int, str] = {}
    for name, begins in facts.begins.items():
        firsts: list[Operation] = []
        known: dict[int, Operation] = {}
        ids = {"", *(message_id(begin.operation.number, begin.row) for begin in begins)}
        for operation, row, halves in begins:
            if not operation.is_ok:
                continue
            verdicts = operation.sent[row : row + len(halves)]
            status, _, number, first_id = verdicts[0]
            if any(verdict.status != status or verdict.offset != number for verdict in verdicts):
                yield f"{name}: its messages are told different things: {operation}"
            if status not in _TOLD:
                if status != KEYS_FULL:
                    yield f"{name} is refused with {status}: {operation}"
                continue
            if numbers.setdefault(number, name) != name:
                yield f"{name} and {numbers[number]} have one number: {operation}"
            known.setdefault(number, operation)
            others = [
                begin for begin in begins if begin.operation is not operation and begin.operation.may_have_happened
            ]
            if status == PREPARED:
                firsts.append(operation)
            elif not operation.lost_attempts and not any(one.operation.began < operation.ended for one in others):
                yield f"{name} was begun before, but nobody did that: {operation}"
            if first_id not in ids:
                yield f"{name} has another first message than {sorted(ids)}: {operation}"
        if len(known) > 1:
            yield f"{name} has several numbers: {known}"
        if len(firsts) > 1:
            yield f"{name} is begun twice: {firsts[0]} and {firsts[1]}"


# Outcomes ---------------------------------------------------------------------------------------------------------
def _ended(facts: TransactionFacts, deal: Deal, end: EndState) -> Iterator[str]:
    told: dict[int, str] = {}
    # (who did it, how many messages, where the first one lies) -> who says so.
    said: dict[tuple[str, int, str, int, int], str] = {}
    ended: list[Operation] = []
    known_from, first = deal.ended
    for tried in deal.tries:
        operation, verdict = tried.operation, tried.verdict
        if verdict is None:
            continue
        if outcome := told_outcome(verdict, tried.outcome):
            told.setdefault(outcome, str(operation))
            place = (verdict.topic, verdict.queue, verdict.offset)
            said.setdefault((BY_TEXTS.get(verdict.by, "nobody"), verdict.messages, *place), str(operation))
            if verdict.outcome != outcome or not deal.may_be(outcome, operation.ended):
                yield f"it is told that it has an outcome that nobody asked for: {operation}"
        if verdict.status == ENDED:
            ended.append(operation)
            if verdict.by != tried.by:
                yield f"it was ended by {verdict.by}: {operation}"
        if operation.began > known_from and verdict.status in {ENDED, EXPIRED_BEFORE}:
            yield f"it is not known to have ended any more: {operation}, after {first}"
    for operation, described in deal.shown:
        if described.state in _OUTCOMES:
            told.setdefault(_OUTCOMES[described.state], str(operation))
            if not deal.may_be(_OUTCOMES[described.state], operation.ended):
                yield f"it has an outcome that nobody asked for: {operation}"
            (place,) = described.places
            said.setdefault((described.by, described.message_count, *place), str(operation))
        elif operation.began > known_from:
            yield f"it is open again: {operation}, after {first}"
    for node in end.nodes:
        kept = node.transactions.get(deal.number)
        if kept is not None and kept.described.state in _OUTCOMES:
            outcome = _OUTCOMES[kept.described.state]
            told.setdefault(outcome, node.node)
            (place,) = kept.described.places
            said.setdefault((kept.described.by, kept.described.message_count, *place), node.node)
            if not deal.may_be(outcome, LATER):
                yield f"on {node.node} it has an outcome that nobody asked for: {kept}"
        elif kept is not None and first is not None:
            yield f"on {node.node} it has not ended: {kept}, after {first}"
    if len(told) > 1:
        yield f"it has ended in both ways: {told}"
    if len(said) > 1:
        yield f"its end is told in different ways: {said}"
    if len(ended) > 1:
        yield f"it was ended twice: {ended[0]} and {ended[1]}"
    halves = facts.halves(deal.name)
    if halves and told:
        yield from _true(next(iter(said)), COMMIT in told, deal, facts, end)


def _true(
    said: tuple[str, int, str, int, int], is_committed: bool, deal: Deal, facts: TransactionFacts, end: EndState
) -> Iterator[str]:
    """Whether what is told of an end is so."""
    halves = facts.halves(deal.name)
    _, count, topic, queue, offset = said
    if count != len(halves) or (topic, queue) != halves[0][:2] or (offset >= 0) != is_committed:
        yield f"{said} is told of {halves}"
    for node in end.nodes if is_committed else ():
        held = node.queues.get((topic, queue))
        there = {stored.offset: stored.body_name for stored in held.messages} if held is not None else {}
        if held is not None and offset >= held.min_offset and there.get(offset) != deal.name:
            yield f"{said} is told, but there {node.node} holds {there.get(offset, 'nothing')}"


def _unknown(history: History, facts: TransactionFacts) -> Iterator[str]:
    """No number that a client was told is unknown to anybody, and clients ask for no others."""
    for deal in facts.deals.values():
        for tried in deal.tries:
            if tried.verdict is not None and tried.verdict.status == TRANSACTION_UNKNOWN:
                yield f"{deal.number} ({deal.name}) is unknown: {tried.operation}"
    for operation in history.operations:
        if isinstance(operation.asked, Describe) and operation.error == TransactionUnknown.code:
            yield f"it is unknown: {operation}"


# What is visible --------------------------------------------------------------------------------------------------
class _Seen:
    """Which messages of transactions were seen, and by whom first."""

    def __init__(self, history: History, owners: dict[str, str]) -> None:
        # First message's name -> the operation that saw one of the messages and ended first.
        self.first: dict[str, Operation] = {}
        for operation in history.operations:
            if not operation.is_ok:
                continue
            match operation.asked:
                case Receive():
                    names = [held.body_name for held in operation.held]
                case Pull():
                    names = [read.body_name for read in operation.pulled.messages]
                case Search():
                    names = [stored.body_name for stored in operation.found]
                case _:
                    continue
            for name in names:
                owner = owners.get(name)
                if owner is not None:
                    other = self.first.setdefault(owner, operation)
                    if operation.ended < other.ended:
                        self.first[owner] = operation


def _early(facts: TransactionFacts, deals: dict[str, Deal], seen: _Seen) -> Iterator[str]:
    for name, operation in seen.first.items():
        # Of one whose number nobody ever heard, and whose first message retention has dropped, nobody knows who ended it.
        nameless = [deal for deal in facts.deals.values() if not deal.name]
        possible = [deals[name]] if name in deals else nameless
        if not any(deal.may_be(COMMIT, operation.ended) for deal in possible):
            yield f"{name} is seen before anybody can have committed it: {operation}"


def _whole(facts: TransactionFacts, deals: dict[str, Deal], owners: dict[str, str], node: NodeEnd) -> Iterator[str]:
    counts: Counter[str] = Counter()
    for held in node.queues.values():
        counts.update(stored.body_name for stored in held.messages if stored.body_name in owners)
    states = {deals[name].number: name for name in deals}
    by_name = {states[number]: kept.described.state for number, kept in node.transactions.items() if number in states}
    for name in facts.begins:
        halves = facts.halves(name)
        there = [half.name for half in halves if counts[half.name]]
        twice = [half.name for half in halves if counts[half.name] > 1]
        if twice:
            yield f"holds {twice} more than once"
        state = by_name.get(name, "")
        if there and state != COMMITTED:
            # (Of one that is known by nothing but a message that retention has dropped, the state cannot be told.)
            is_excused = not state and any(_oldest(node, half.topic, half.queue) for half in halves[:1])
            if not is_excused:
                yield f"holds {there} of {name}, which is {state or 'not known'}"
        if there or state == COMMITTED:
            missing = [
                half.name for half in halves if not counts[half.name] and not _oldest(node, half.topic, half.queue)
            ]
            if missing:
                yield f"holds {there} of {name}, and not {missing}"


def _oldest(node: NodeEnd, topic: str, queue: int) -> int:
    held = node.queues.get((topic, queue))
    return held.min_offset if held is not None else 0


def _torn(
    history: History, facts: TransactionFacts, deals: dict[str, Deal], seen: _Seen, end: EndState
) -> Iterator[str]:
    """What was seen of a queue, or found, after a transaction had become visible."""
    places = {
        stored.body_name: (topic, queue, stored.offset)
        for (topic, queue), held in end.nodes[0].queues.items()
        for stored in held.messages
    }
    # (event, 0 for a beginning and 1 for an end, queue, its end, operation)
    events: list[tuple[int, int, tuple[str, int], int, Operation]] = []
    visible: dict[str, Operation] = {}
    for name in facts.begins:
        told = [seen.first[name]] if name in seen.first else []
        for tried in deals[name].tries if name in deals else ():
            if tried.verdict is not None and tried.verdict.status in {ENDED, ENDED_BEFORE} and tried.outcome == COMMIT:
                told.append(tried.operation)
        if not told:
            continue
        first = min(told, key=lambda operation: operation.ended)
        for half in facts.halves(name):
            if half.name in places:
                visible[half.name] = first
                topic, queue, offset = places[half.name]
                events.append((first.ended, 1, (topic, queue), offset + 1, first))
    for operation in history.operations:
        if not operation.is_ok:
            continue
        match operation.asked:
            case Pull(topic, queue, _):
                events.append((operation.began, 0, (topic, queue), operation.pulled.max_offset, operation))
            case Offsets(topic):
                for ends in operation.ends:
                    events.append((operation.began, 0, (topic, ends.queue), ends.max_offset, operation))
            case Search(_, name, _):
                is_late = name in visible and operation.began > visible[name].ended
                if is_late and name not in {stored.body_name for stored in operation.found}:
                    yield f"{name} is not found: {operation}, after {visible[name]}"
    floors: dict[tuple[str, int], tuple[int, Operation]] = {}
    for _, kind, place, queue_end, operation in sorted(events, key=lambda event: event[:2]):
        floor = floors.get(place)
        if kind and (floor is None or queue_end > floor[0]):
            floors[place] = (queue_end, operation)
        elif not kind and floor is not None and queue_end < floor[0]:
            yield f"{place} ends at {queue_end} in {operation}, a message at {floor[0] - 1} was visible as {floor[1]} shows"


# What is kept -----------------------------------------------------------------------------------------------------
def _kept(facts: TransactionFacts, node: NodeEnd) -> Iterator[str]:
    for deal in facts.deals.values():
        kept = node.transactions.get(deal.number)
        if kept is None:
            yield f"has forgotten {deal.number} ({deal.name})"
            continue
        halves = facts.halves(deal.name)
        if kept.described.state in _OUTCOMES or not halves:
            continue
        places = tuple((half.topic, half.queue, -1) for half in halves)
        if kept.names != tuple(half.name for half in halves) or kept.described.places != places:
            yield f"keeps {kept} of {halves}"
        if kept.described.producer_group != facts.begins[deal.name][0].asked.producer_group:
            yield f"keeps {kept} of another producer group"
