"""Checks: an open transaction is asked about too early, too often, not often enough, or by two at once; or it is given up too early.

Exactly: 1. A claim gets checks of the group it asked for, with that transaction's messages, and no more than it asked for; no two claims have one id. 2. An
attempt is handed out twice at the most, the second time not before the first claim's end; never again once a report of it was noted; attempts
are counted one by one, and are no more than the producer group's max_checks. 3. The first attempt is not before its time; the next one not
before one interval after the last claim's end, or after its report. An attempt whose first claim ended without a report is passed on. Where
a group has no URL, attempts may also be missed: one for each interval in which a check was due and nobody asked. 4. Nothing
is handed out of what is known to have ended or been given up, and a report that was noted comes before the end, and before the next claim. One
that was not has a reason. 5. A transaction is given up only after max_checks attempts and one more interval; then clients and checkers do not
end it any more. Whoever looks sees as many attempts as were handed out before. 6. A check that was due, as an earlier grant of the same
node shows, is handed out to a claim that had room for it. (One that was deposed, and does not know it yet, may say that nothing is due.)

Not demanded: what claims of unknown outcome may have taken.
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise

from tern_wire.transactions import (
    BY_CLIENT,
    BY_HAND,
    CHECK_NOT_YOURS,
    CHECK_NOTED,
    ENDED,
    EXPIRED,
    EXPIRED_BEFORE,
    LOST,
    NOT_ASKED,
    OPEN,
)
from tests.sim.checkers.grants import Facts, facts_of
from tests.sim.checkers.transaction_facts import Deal, Granted, ProducerRules, TransactionFacts, transaction_facts
from tests.sim.history.history import LATER, EndState, History, Operation, Violation
from tests.sim.history.transaction_values import Claim, Described

PASSES_MAX = 2


def check(history: History, end: EndState) -> list[Violation]:
    """Every violation; O(claims * transactions + operations * log operations)."""
    facts, times = transaction_facts(history, end), facts_of(history, end)
    if not facts.rules:
        return []
    found = [*_claims(facts)]
    for deal in facts.deals.values():
        deal.claims.sort(key=lambda claimed: claimed.check.claim)
        found += [f"{deal.number} ({deal.name}): {text}" for text in _of(deal, facts, times, end)]
    found += _not_offered(facts, times, end)
    return [Violation("checks", text) for text in found]


def _of(deal: Deal, facts: TransactionFacts, times: Facts, end: EndState) -> Iterator[str]:
    group = _group_of(deal, facts, end)
    rules = facts.rules.get(group)
    if rules is None:
        return
    if deal.claims:
        yield from _handed_out(deal, group, rules, facts, times)
    yield from _reported(deal, facts, times)
    yield from _given_up(deal, group, rules, facts, times)
    yield from _shown(deal, rules, facts, end)


def _group_of(deal: Deal, facts: TransactionFacts, end: EndState) -> str:
    if deal.name in facts.begins:
        return facts.begins[deal.name][0].asked.producer_group
    kept = end.nodes[0].transactions.get(deal.number)
    return kept.described.producer_group if kept is not None else ""


# Claims -----------------------------------------------------------------------------------------------------------
def _claims(facts: TransactionFacts) -> Iterator[str]:
    owners: dict[int, Operation] = {}
    for operation in facts.claims:
        asked = operation.asked
        assert isinstance(asked, Claim)
        if len(operation.checks) > asked.count_max:
            yield f"more checks than were asked for: {operation}"
        for one in operation.checks:
            if owners.setdefault(one.claim, operation) is not operation:
                yield f"claim {one.claim} is in {owners[one.claim]} and {operation}"
            is_wanted = one.producer_group == asked.producer_group or (
                not asked.producer_group and facts.rules[one.producer_group].has_url
            )
            halves = facts.halves(one.names[0]) if one.names else ()
            names, places = (tuple(half.name for half in halves), tuple((half.topic, half.queue) for half in halves))
            if not is_wanted or (one.names, one.places) != (names, places):
                yield f"{one} is not what there is to ask about: {operation}"
            deal = facts.deals[one.number]
            if deal.name and one.names and one.names[0] != deal.name:
                yield f"{one} is of another transaction than {deal.name}: {operation}"


def _handed_out(deal: Deal, group: str, rules: ProducerRules, facts: TransactionFacts, times: Facts) -> Iterator[str]:
    first = deal.claims[0]
    begun = {claimed.check.begun_ms for claimed in deal.claims}
    if len(begun) > 1:
        yield f"it was begun at {sorted(begun)}"
    asked = facts.begins[deal.name][0].asked if deal.name in facts.begins else None
    due_ms = first.check.begun_ms + ((asked.check_after_ms if asked is not None else 0) or rules.check_after_ms)
    if first.granted_ms < due_ms:
        yield f"is due at {due_ms}, and asked about at {first.granted_ms}: {first.operation}"
    known_from, ended = deal.ended
    for claimed in deal.claims:
        if claimed.operation.began > known_from:
            yield f"is asked about after its end: {claimed.operation}, after {ended}"
        if not 1 <= claimed.check.attempt <= rules.max_checks:
            yield f"attempt {claimed.check.attempt} of {rules.max_checks}: {claimed.operation}"
        unseen = facts.unseen_before(claimed.operation.ended, group)
        if claimed is first and claimed.check.attempt > 1 + unseen + rules.in_vain(due_ms, claimed.granted_ms):
            yield f"begins with attempt {claimed.check.attempt}: {claimed.operation}"
    passes: dict[int, int] = {}
    for claimed in deal.claims:
        attempt = claimed.check.attempt
        passes[attempt] = passes.get(attempt, 0) + 1
        if passes[attempt] == PASSES_MAX + 1:
            yield f"attempt {attempt} is handed out again and again: {claimed.operation}"
    for before, after in pairwise(deal.claims):
        yield from _next(before, after, deal, rules, facts, times, facts.unseen_before(after.operation.ended, group))


def _next(
    before: Granted,
    after: Granted,
    deal: Deal,
    rules: ProducerRules,
    facts: TransactionFacts,
    times: Facts,
    unseen: int,
) -> Iterator[str]:
    step = after.check.attempt - before.check.attempt
    reports = facts.reports.get((deal.number, before.check.claim), [])
    missed = rules.in_vain(_due_ms(before, deal, rules, facts, times), after.granted_ms)
    if not 0 <= step <= 1 + unseen + missed:
        yield f"attempts go from {before.check.attempt} to {after.check.attempt}: {before.operation}, {after.operation}"
    elif step == 0:
        if after.granted_ms < before.check.until_ms:
            yield f"two have the same attempt at once: {before.operation}, {after.operation}"
        noted = [told for told in reports if told.status == CHECK_NOTED]
        if noted:
            yield f"is asked again though {noted[0].operation} was noted: {after.operation}"
    else:
        due_ms = _due_ms(before, deal, rules, facts, times)
        if after.granted_ms < due_ms:
            yield f"is not to be asked before {due_ms}: {after.operation}, after {before.operation}"
        is_first = [other.check.attempt for other in deal.claims].count(before.check.attempt) == 1
        is_missed = rules.in_vain(before.check.until_ms, after.granted_ms) > 0
        if is_first and not reports and not unseen and not is_missed:
            yield f"attempt {before.check.attempt} is not passed on: {before.operation}, {after.operation}"


def _due_ms(last: Granted, deal: Deal, rules: ProducerRules, facts: TransactionFacts, times: Facts) -> int:
    """When, at the earliest, the next attempt after that of *last* is due: an interval after its report, or its end."""
    over_ms = last.check.until_ms
    for told in facts.reports.get((deal.number, last.check.claim), []):
        if told.status != CHECK_NOT_YOURS or told.operation.lost_attempts:
            over_ms = min(over_ms, max(last.granted_ms, times.time_before(told.operation.began)))
    return over_ms + rules.check_interval_ms


# Reports ----------------------------------------------------------------------------------------------------------
def _reported(deal: Deal, facts: TransactionFacts, times: Facts) -> Iterator[str]:
    known_from, ended = deal.ended
    for claimed in deal.claims:
        reports = facts.reports.get((deal.number, claimed.check.claim), [])
        noted = [told for told in reports if told.status == CHECK_NOTED]
        if len(noted) > 1:
            yield f"two reports of one claim are noted: {noted[0].operation} and {noted[1].operation}"
        later = [other.operation for other in deal.claims if other.check.claim > claimed.check.claim]
        for told in reports:
            operation = told.operation
            if told.status == CHECK_NOTED and not operation.lost_attempts:
                if operation.began > known_from:
                    yield f"a report is noted after the end: {operation}, after {ended}"
                for other in later:
                    if other.ended < operation.began:
                        yield f"a report of an old claim is noted: {operation}, after {other}"
            elif told.status == CHECK_NOT_YOURS and not operation.lost_attempts:
                is_over = any(other.began < operation.ended for other in later)
                is_over |= any(one.may_have_ended and one.operation.began < operation.ended for one in deal.tries)
                is_over |= any(other is not told and other.operation.began < operation.ended for other in reports)
                shown = times.shown_after(operation.ended)
                if not is_over and shown is not None and shown.granted_ms < claimed.check.until_ms:
                    yield f"a report is not noted, at {shown.granted_ms} at the latest: {operation} of {claimed.check}"


# Giving up --------------------------------------------------------------------------------------------------------
def _given_up(deal: Deal, group: str, rules: ProducerRules, facts: TransactionFacts, times: Facts) -> Iterator[str]:
    told = [
        tried.operation for tried in deal.tries if tried.verdict is not None and tried.verdict.status == EXPIRED_BEFORE
    ]
    told += [operation for operation, described in deal.shown if described.state == EXPIRED]
    for operation in told:
        attempts = max(
            [claimed.check.attempt for claimed in deal.claims if claimed.operation.began < operation.ended], default=0
        )
        unseen = facts.unseen_before(operation.ended, group)
        shown = times.shown_after(operation.ended)
        # Attempts in vain take their time; when nobody shows what time it was, there may have been any number.
        missed = rules.max_checks
        before = [claimed.granted_ms for claimed in deal.claims if claimed.operation.began < operation.ended]
        if rules.has_url:
            missed = 0
        elif shown is not None and deal.begun_ms:
            missed = rules.in_vain(max([deal.begun_ms, *before]), shown.granted_ms)
        if attempts + unseen + missed < rules.max_checks:
            yield f"is given up after {attempts} of {rules.max_checks} attempts: {operation}"
        if attempts == rules.max_checks:
            due_ms = _due_ms(deal.claims[-1], deal, rules, facts, times)
            if shown is not None and shown.granted_ms < due_ms:
                yield f"is given up at {shown.granted_ms} at the latest, to be at {due_ms}: {operation}"
    known_from = min((operation.ended for operation in told), default=LATER)
    for tried in deal.tries:
        is_late = tried.operation.began > known_from and tried.by != BY_HAND
        if is_late and tried.verdict is not None and tried.verdict.status == ENDED:
            yield f"is ended by {'its client' if tried.by == BY_CLIENT else 'a check'} though it was given up: {tried.operation}"
    for claimed in deal.claims:
        if claimed.operation.began > known_from:
            yield f"is asked about though it was given up: {claimed.operation}"
    for operation, described in deal.shown:
        if described.state == OPEN and operation.began > known_from:
            yield f"is open again after it was given up: {operation}"


def _shown(deal: Deal, rules: ProducerRules, facts: TransactionFacts, end: EndState) -> Iterator[str]:
    looks: list[tuple[int, int, object, Described]] = [
        (operation.began, operation.ended, operation, described) for operation, described in deal.shown
    ]
    for node in end.nodes:
        if deal.number in node.transactions:
            looks.append((LATER, LATER, node.node, node.transactions[deal.number].described))
    for began, ended, who, described in looks:
        least = max([claimed.check.attempt for claimed in deal.claims if claimed.operation.ended < began], default=0)
        if not least <= described.attempts <= rules.max_checks:
            yield f"{least} attempts were made, of {rules.max_checks}: {who} says {described}"
        if described.state == EXPIRED and described.attempts != rules.max_checks:
            yield f"is given up after {described.attempts} of {rules.max_checks} attempts: {who} says {described}"
        answers = {
            told.answer
            for claimed in deal.claims
            for told in facts.reports.get((deal.number, claimed.check.claim), [])
            if told.operation.began < ended
        }
        attempts = [note.attempt for note in described.notes]
        answers |= {LOST} if rules.has_url else {LOST, NOT_ASKED}
        if not {note.answer for note in described.notes} <= answers or attempts != sorted(set(attempts)):
            yield f"nobody has reported {described.notes}: {who}"


# What is due ------------------------------------------------------------------------------------------------------
def _not_offered(facts: TransactionFacts, times: Facts, end: EndState) -> Iterator[str]:
    """Of transactions that were never asked about: a claim with room for them passes them by."""
    first_due = []
    for deal in facts.deals.values():
        kept = end.nodes[0].transactions.get(deal.number)
        begins = facts.begins.get(deal.name, ())
        if kept is None or len(begins) != 1:
            continue
        asked = begins[0].asked
        rules = facts.rules[asked.producer_group]
        if not rules.has_url and kept.described.attempts >= rules.max_checks:
            # It may have been given up by then, nobody having asked.
            continue
        due_ms = kept.described.begun_ms + (asked.check_after_ms or rules.check_after_ms)
        # From when on it may have been claimed, by somebody who was heard or not, or have ended.
        over = min([claimed.operation.began for claimed in deal.claims], default=LATER)
        over = min([over, *(tried.operation.began for tried in deal.tries if tried.may_have_ended)])
        over = min([over, *(claim.began for claim in facts.unseen)])
        first_due.append((due_ms, begins[0].operation.ended, over, asked.producer_group, deal))
    # Node -> when it had answered a grant, and what the group's time was by then, at least.
    known: dict[str, tuple[list[int], list[int]]] = {}
    for grant in times.all_grants:
        ends, latest = known.setdefault(grant.operation.node, ([], []))
        ends.append(grant.operation.ended)
        latest.append(max(grant.granted_ms, latest[-1] if latest else 0))
    finals = [
        (tried.operation.began, tried.operation.ended)
        for deal in facts.deals.values()
        for tried in deal.tries
        if tried.may_have_ended
    ]
    for operation in facts.claims:
        claim = operation.asked
        assert isinstance(claim, Claim)
        ends, latest = known.get(operation.node, ([], []))
        at = bisect_right(ends, operation.began)
        # What it was given and what had ended by the time of its answer is not told.
        untold = sum(began <= operation.ended and ended >= operation.began for began, ended in finals)
        if len(operation.checks) + untold >= claim.count_max or not at:
            continue
        now_ms = latest[at - 1]
        for due_ms, begun, over, group, deal in first_due:
            is_wanted = group == claim.producer_group or (not claim.producer_group and facts.rules[group].has_url)
            if is_wanted and due_ms <= now_ms and begun < operation.began and operation.ended < over:
                yield f"{deal.number} ({deal.name}), due at {due_ms}, is not handed out at {now_ms}: {operation}"
