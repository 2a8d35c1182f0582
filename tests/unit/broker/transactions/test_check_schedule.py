"""When transactions are asked about, as apply decides it: due times, claims that are passed on, reports, and an end to asking."""

import random
import time
from itertools import count
from typing import Any

import pytest

from tern_broker.core import StateMachine, saving
from tern_broker.core.recent_texts import RecentTexts
from tern_broker.core.transactions.check_schedule import MOVES_MAX
from tern_broker.core.transactions.views import describe_transaction
from tern_wire.errors import ProducerGroupNotFound, TernError
from tern_wire.limits import CHECK_TEXTS_MAX, CHECKS_KEPT_MAX
from tern_wire.link.commands import CommandKind
from tern_wire.transactions import BY_CHECK, COMMIT, ENDED, ENDED_BEFORE, EXPIRED_BEFORE, OTHER_OUTCOME, ROLLBACK
from tests.support.broker.half_messages import TransactionLog, facts


def described(log: TransactionLog, number: int) -> dict[str, Any]:
    """What the state says of a transaction."""
    return describe_transaction(log.state.transactions, log.state.names, number, log.p)


def test_a_check_is_due_after_the_time_of_its_group_or_of_its_message() -> None:
    """Not a millisecond earlier; the group's setting counts when the message says nothing."""
    log = TransactionLog(check_after_ms=6_000)
    first, second = log.begin_one(1_000), log.begin_one(1_000, check_after_ms=250)
    assert not log.state.is_due(1_249)
    assert log.claim(1_249) == []
    assert log.state.is_due(1_250)
    applied = log.apply(1_250)
    assert applied.checks_due
    assert not log.state.is_due(1_250)
    assert log.claim(1_250) == [[second, 1, 1]]
    assert described(log, first)["check_at_ms"] == 7_000
    assert log.claim(6_999) == [[second, 2, 1]]
    assert log.claim(7_000) == [[first, 3, 1]]


def test_a_claim_without_a_report_passes_the_same_attempt_on_once() -> None:
    """To anybody who claims next; then the attempt is lost, noted, and the next one comes an interval after the claim's end."""
    log = TransactionLog(check_after_ms=100, check_interval_ms=500)
    number = log.begin_one(1_000)
    assert log.claim(1_100, checker="one", claim_ms=50) == [[number, 1, 1]]
    assert log.claim(1_149, checker="two") == []
    assert log.claim(1_160, checker="two", claim_ms=50) == [[number, 2, 1]]
    assert log.report(1_170, (number, 1)) == [1], "the first claim is over"
    assert log.claim(1_300, checker="three") == []
    assert described(log, number)["checks"] == [[1, 1_160, "two", "lost", 0]]
    assert described(log, number)["check_at_ms"] == 1_210 + 500
    assert log.claim(1_709) == []
    assert log.claim(1_710) == [[number, 3, 2]]
    assert log.report(1_720, (number, 3)) == [0]
    assert log.report(1_721, (number, 3)) == [1], "once"
    assert described(log, number)["checks"][1:] == [[2, 1_710, "c", "unknown", 7]]
    assert described(log, number)["check_at_ms"] == 1_720 + 500
    stats = log.state.producers.by_id[log.p].describe()["stats"]
    assert (stats["checks"], log.state.counters.checks) == (2, 3), "attempts, and how often one was handed out"


@pytest.mark.parametrize("reports", [True, False], ids=["reported", "lost"])
def test_after_max_checks_a_transaction_is_parked_and_not_before(reports: bool) -> None:
    """Asked exactly so often; at the next check's time it has expired, and only a person ends it."""
    log = TransactionLog(check_after_ms=100, check_interval_ms=100, max_checks=3)
    number, now_ms, attempts = log.begin_one(1_000), 1_000, []
    for _ in range(400):
        now_ms += 10
        for claimed, claim, attempt in log.claim(now_ms, claim_ms=20):
            attempts.append(attempt)
            if reports:
                assert log.report(now_ms, (claimed, claim), answer="http-503") == [0]
        if described(log, number)["state"] == "expired":
            break
        assert log.state.counters.checks_given_up == 0
    assert attempts == ([1, 2, 3] if reports else [1, 1, 2, 2, 3, 3])
    found = described(log, number)
    assert (found["state"], found["attempts"], found["check_at_ms"], len(found["checks"])) == ("expired", 3, 0, 3)
    assert (now_ms == 1_400) == reports
    assert log.state.counters.checks_given_up == 1
    assert log.state.producers.by_id[log.p].describe()["stats"]["expired"] == 1
    assert log.end(now_ms, number)["status"].tolist() == [EXPIRED_BEFORE]
    assert log.end(now_ms, number, by=BY_CHECK, outcome=ROLLBACK)["status"].tolist() == [EXPIRED_BEFORE]
    assert log.claim(now_ms + 10_000) == []
    assert not log.state.is_due(now_ms + 10_000_000)
    resolved = log.resolve(now_ms, number, reason="checked the books")
    assert (resolved["status"], resolved["topic_id"], resolved["offset"], resolved["by"]) == (ENDED, log.t, 0, 3)
    assert log.end(now_ms, number)["status"].tolist() == [ENDED_BEFORE]
    ended = described(log, number)
    assert (ended["state"], ended["by"], ended["reason"], ended["attempts"]) == (
        "committed",
        "hand",
        "checked the books",
        3,
    )
    assert log.state.producers.by_id[log.p].describe()["stats"]["expired"] == 0
    assert log.resolve(now_ms, number, ROLLBACK)["status"] == OTHER_OUTCOME


def test_an_end_by_the_client_wins_over_a_running_check() -> None:
    """Its claim is nobody's any more, nothing is due; what was decided by the check before it stays."""
    log = TransactionLog(check_after_ms=100)
    number, other = log.begin_one(1_000), log.begin_one(1_000)
    (_, claim, _), _ = log.claim(1_100)
    assert log.end(1_150, number)["status"].tolist() == [ENDED]
    assert log.report(1_160, (number, claim)) == [1]
    assert log.end(1_170, number, outcome=ROLLBACK, by=BY_CHECK)["status"].tolist() == [OTHER_OUTCOME]
    assert log.end(1_180, other, by=BY_CHECK)["status"].tolist() == [ENDED]
    assert not log.state.is_due(1 << 40)


def test_claims_take_turns_between_groups_and_keep_to_their_bounds() -> None:
    """Longest due first, one of each group in turn; with "" only of those that have a URL; of at most so many bytes, one at least."""
    log = TransactionLog(check_after_ms=100, check_url="https://a.example/c")
    pulled, called = (
        log.producer_group("q", check_after_ms=100),
        log.producer_group("r", check_after_ms=100, check_url="http://b/c"),
    )
    many = [log.begin_one(1_000 + n) for n in range(5)]
    few = [log.begin_one(1_010, group=called), log.begin_one(1_011, group=called)]
    own = log.begin_one(1_000, group=pulled)
    log.apply(2_000)
    schedule = log.state.transactions.schedule
    assert [schedule.available(group) for group in (0, log.p, pulled, called, 99)] == [7, 5, 1, 2, 0]
    claimed = [number for number, _, _ in log.claim(2_000, "", count=5)]
    assert claimed == [many[0], few[0], many[1], few[1], many[2]]
    assert [number for number, _, _ in log.claim(2_000, "")] == many[3:]
    assert [number for number, _, _ in log.claim(2_000, "q")] == [own]
    assert isinstance(
        log.ask(2_000, CommandKind.CLAIM_CHECKS, producer_group="z", checker="c", max=1, claim_ms=1, max_bytes=1),
        ProducerGroupNotFound,
    )
    size = log.state.transactions.table.get("size", log.state.transactions.table.slots[many[0]])
    for most, wanted in ((1, 1), (size, 1), (2 * size, 2), (2 * size + 1, 2), (3 * size, 3)):
        log.apply(log.state.now_ms + 50_000)
        request = {"producer_group": "p", "checker": "c", "max": 99, "claim_ms": 1, "max_bytes": most}
        assert len(log.ask(log.state.now_ms, CommandKind.CLAIM_CHECKS, **request)["checks"]) == wanted


def test_a_group_that_gets_a_check_url_has_its_checks_called_from_then_on() -> None:
    """Whoever waits for any check is told that there may be one."""
    log = TransactionLog(check_after_ms=100)
    number = log.begin_one(1_000)
    log.apply(2_000)
    assert log.claim(2_000, "") == []
    log.producer_group("p", check_url="http://a/c")
    assert log.claim(2_001, "") == [[number, 1, 1]]


def test_settings_hold_from_the_next_decision_on() -> None:
    """A shorter interval for the next check; fewer checks for who has been asked that often."""
    log = TransactionLog(check_after_ms=100, check_interval_ms=10_000)
    number = log.begin_one(1_000)
    ((_, claim, _),) = log.claim(1_100)
    log.producer_group("p", check_interval_ms=200, max_checks=1)
    log.report(1_150, (number, claim))
    assert described(log, number)["check_at_ms"] == 1_350
    log.apply(1_350)
    assert described(log, number)["state"] == "expired"


def test_only_the_newest_notes_are_kept() -> None:
    """However often somebody is asked."""
    log = TransactionLog(check_after_ms=100, check_interval_ms=100, max_checks=100)
    number, now_ms = log.begin_one(1_000), 1_000
    for _ in range(40):
        now_ms += 1_000
        for claimed, claim, attempt in log.claim(now_ms):
            log.report(now_ms, (claimed, claim), answer=f"http-{attempt}")
    checks = described(log, number)["checks"]
    assert [check[0] for check in checks] == list(range(41 - CHECKS_KEPT_MAX, 41))
    assert checks[-1][2:] == ["c", "http-40", 7]


def test_texts_are_kept_once_and_the_oldest_are_forgotten() -> None:
    """A number stands for the same text as long as it is there, also after a restart; then for nothing."""
    texts = RecentTexts()
    numbers = [texts.number(f"t{number}") for number in range(CHECK_TEXTS_MAX)]
    assert texts.number("t0") == numbers[0]
    assert texts.number("") == 0
    assert texts.text(0) == ""
    texts.number("one more")
    assert (texts.text(numbers[0]), texts.text(numbers[1])) == ("", "t1")
    loaded = RecentTexts()
    loaded.unpack(texts.pack())
    assert [loaded.text(number) for number in (numbers[0], numbers[1], numbers[-1] + 1)] == ["", "t1", "one more"]
    assert loaded.number("new") == texts.number("new")
    assert loaded.pack() == texts.pack()


@pytest.mark.parametrize("seed", range(6))
def test_a_schedule_does_what_a_plain_model_would(seed: int) -> None:
    """Begins, claims, reports, ends and time by chance, with restarts in between: each attempt goes out at most twice, none is skipped."""
    rng = random.Random(seed)
    settings = {"check_after_ms": 100, "check_interval_ms": 300, "max_checks": 2}
    log = TransactionLog(**settings)
    log.producer_group("q", **settings, check_url="http://a/c", timeout_ms=100)
    groups = {"p": log.p, "q": log.state.producers.by_name["q"].producer_group_id}
    # number -> [group, phase, at_ms, attempts, passes, claim, vain_ms]
    model: dict[int, list[Any]] = {}
    claims, now_ms, asked_ms = count(1), 1_000, 0
    for _ in range(400):
        now_ms += rng.choice([0, 1, 40, 150])
        log.apply(now_ms)
        for one in sorted(model.values(), key=lambda one: one[2]):
            while (one[1] in {"waiting", "claimed"} and one[2] <= now_ms) or (one[1] == "due" and one[6] <= now_ms):
                if one[1] == "due":
                    if asked_ms + 300 > now_ms:
                        one[6] = asked_ms + 300
                    else:
                        one[1:3], one[3:6] = ["waiting", now_ms], [one[3] + (not one[4]), 0, 0]
                    continue
                vain_ms = now_ms + 300 if one[0] == "p" else 1 << 60
                if one[1] == "waiting":
                    one[1], one[4], one[6] = ("parked" if one[3] >= 2 else "due"), 0, vain_ms
                elif one[4] == 2:
                    one[1:3], one[4:6] = ["waiting", one[2] + 300], [0, 0]
                else:
                    one[1], one[6] = "due", vain_ms
        match rng.randrange(6):
            case 0 | 1:
                name = rng.choice(["p", "q"])
                number = log.begin_one(now_ms, group=groups[name])
                model[number] = [name, "waiting", now_ms + 100, 0, 0, 0, 0]
            case 2:
                name = rng.choice(["p", "q", ""])
                wanted = sorted(
                    (one[2], number) for number, one in model.items() if one[1] == "due" and one[0] == (name or "q")
                )
                most, claim_ms = rng.randrange(1, 4), rng.choice([10, 200])
                asked_ms = now_ms if name == "p" else asked_ms
                expected = []
                for _, number in wanted[:most]:
                    one = model[number]
                    one[3] += not one[4]
                    called_ms = 100 if one[0] == "q" else 0
                    one[1:3], one[4:6] = ["claimed", now_ms + claim_ms + called_ms], [one[4] + 1, next(claims)]
                    assert one[4] <= 2
                    expected.append([number, one[5], one[3]])
                assert log.claim(now_ms, name, count=most, claim_ms=claim_ms) == expected
            case 3 if model:
                number, one = rng.choice(list(model.items()))
                claim = rng.choice([one[5], one[5] + 1, 0])
                is_own = one[1] == "claimed" and claim == one[5]
                assert log.report(now_ms, (number, claim)) == [0 if is_own else 1]
                if is_own:
                    one[1:3], one[4:6] = ["waiting", now_ms + 300], [0, 0]
            case 4 if model:
                number, one = rng.choice(list(model.items()))
                status = log.end(now_ms, number, group=groups[one[0]])["status"].tolist()
                assert status == [EXPIRED_BEFORE if one[1] == "parked" else ENDED]
                if one[1] != "parked":
                    del model[number]
            case 5:
                log.state = saving.load(b"".join(saving.encode(saving.take(log.state))))
        state = log.state
        due = {name: sum(one[1] == "due" and one[0] == name for one in model.values()) for name in groups}
        assert {name: state.transactions.schedule.available(group) for name, group in groups.items()} == due
        times = [one[2] for one in model.values() if one[1] in {"waiting", "claimed"}]
        times += [one[6] for one in model.values() if one[1] == "due" and one[0] == "p"]
        assert state.is_due(now_ms) == any(at_ms <= now_ms for at_ms in times)
        assert not times or (state.is_due(min(times)) and (min(times) <= now_ms or not state.is_due(min(times) - 1)))
    assert len(log.state.transactions.table) == len(model)
    assert facts(saving.load(b"".join(saving.encode(saving.take(log.state))))) == facts(log.state)


def test_many_that_come_due_at_once_are_moved_over_several_entries() -> None:
    """No entry does more than so many; the next follows at once, and none is forgotten."""
    log = TransactionLog(check_after_ms=100)
    for group in range(6):
        group_id = log.producer_group(f"g{group}", check_after_ms=100)
        log.begin(1_000, *(((log.t, 0, b"m"),) for _ in range(900)), group=group_id)
    entries = 0
    while log.state.is_due(2_000):
        log.apply(2_000)
        entries += 1
    assert entries == -(-5_400 // MOVES_MAX)
    groups = log.state.producers.by_id
    assert sum(log.state.transactions.schedule.available(group) for group in groups) == 5_400


def _filled(state: StateMachine, log: TransactionLog, open_count: int, groups: int) -> None:
    for group in range(groups):
        group_id = log.producer_group(f"g{group}")
        log.begin(1_000, *(((log.t, 0, b"m"),) for _ in range(open_count // groups)), group=group_id)


def test_looking_for_what_is_due_costs_the_same_however_many_are_open() -> None:
    """With 20,000 open transactions a look is a few comparisons, not a scan: compared with one open transaction."""
    small, large = TransactionLog(), TransactionLog()
    small.begin_one(1_000)
    _filled(large.state, large, 20_000, 20)
    assert len(large.state.transactions.table) == 20_000

    def cost_s(log: TransactionLog) -> float:
        """The best of several: another process may take the core."""
        best = 1e9
        for _ in range(20):
            begin = time.perf_counter()
            for _ in range(200):
                log.state.transactions.is_due(2_000)
                log.state.transactions.schedule.advance(2_000)
            best = min(best, time.perf_counter() - begin)
        return best

    assert cost_s(large) < 4 * cost_s(small)


def test_stale_times_do_not_pile_up() -> None:
    """Transactions that come and go by the thousands leave heaps of the size of what is open."""
    log = TransactionLog(check_after_ms=3_600_000)
    group_id = log.producer_group("q", check_after_ms=100)
    log.begin(1_000, ((log.t, 0, b"m"),), group=group_id)
    now_ms = 1_000
    for _ in range(30):
        now_ms += 1
        _, numbers = log.begin(now_ms, *(((log.t, 0, b"m"),) for _ in range(200)))
        verdicts = log.end(now_ms, *numbers, outcome=COMMIT)
        assert set(verdicts["status"].tolist()) == {ENDED}
    schedule = log.state.transactions.schedule
    assert len(schedule._times.pairs) <= 2 * 201 + 256
    refused = log.ask(now_ms, CommandKind.REPORT_CHECKS, reports=[[1, 2, "", 3]])
    assert isinstance(refused, TernError)
