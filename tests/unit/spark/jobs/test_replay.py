"""`replay` over a scripted proxy: what is in an archive is in the topic again, once, whatever ends a run."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tern_jobs.frame.run import Clock, run_job
from tern_jobs.replay.plans import ReplayNote, ReplayPlan, ReplayState
from tern_jobs.replay.slices import TASK_ROWS, batches_of, slices_of, tasks_of
from tern_jobs.replay_job import JOB
from tern_wire.limits_publications import PUBLICATION_KEPT_MS
from tern_wire.records.properties import CONTENT_TYPE, MESSAGE_GROUP
from tests.support.client.batch_server import Fault, Store, batch_server
from tests.support.client.job_runs import DAY_MS, Ended, archive, run, stored_on, verify
from tests.support.client.record_server import Script, record_server
from tests.unit.spark.jobs.plans import plan_with

REFUSED: Fault = (400, {"code": "illegal-tag", "pointer": "/messages/0/tag"})
QUEUES, ROWS = 3, 40
WHOLE = QUEUES * ROWS


def record(queue: int, number: int) -> bytes:
    """Record *number* of a queue: of one message group each, red or blue, on one of two days."""
    properties = {
        "TAGS": ("red", "blue")[number % 2],
        "KEYS": f"k{number} shop",
        CONTENT_TYPE: "text/plain",
        MESSAGE_GROUP: f"group-{queue}",
        "price": str(number),
        "color": "x",
    }
    stored_ms = (20_000 + (number >= 25)) * DAY_MS + number
    return stored_on(number, b"%d/%d" % (queue, number), stored_ms, properties if number % 5 else None, queue=queue)


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of 120 rows in six files."""
    at = tmp_path_factory.mktemp("archives") / "archive"
    queues = {f"broker-a:{queue}": [record(queue, number) for number in range(ROWS)] for queue in range(QUEUES)}
    with record_server(Script(queues=queues)) as script:
        assert archive(script, at).code == 0
    return at


@pytest.fixture
def store() -> Iterator[Store]:
    """A proxy that stages and publishes."""
    with batch_server() as serving:
        yield serving


def replay(store: Store, at: Path, state: Path, *arguments: str) -> Ended:
    """Replay the archive in batches of about 30 rows."""
    script = Script(queues={}, url=store.url)
    given = ["--archive", str(at), "--to", "again", "--state", str(state), "--batch-rows", "30", *arguments]
    return run("replay", script, *given)


def bodies(store: Store) -> list[bytes]:
    """What is in the topic."""
    return store.bodies("again")


EVERYTHING = sorted(b"%d/%d" % (queue, number) for queue in range(QUEUES) for number in range(ROWS))


def test_every_row_is_there_again_with_all_that_its_producer_gave(archived: Path, store: Store, tmp_path: Path) -> None:
    """Groups in order, key, tag, type and properties; where it was; in four batches."""
    ended = replay(store, archived, tmp_path)
    assert ended.code == 0, ended.stderr
    assert (ended.facts["rows"], ended.facts["batches"], ended.faults) == (WHOLE, 4, [])
    assert sorted(bodies(store)) == EVERYTHING
    by_group: dict[str, list[int]] = {}
    for message in store.topics["again"]:
        queue, number = map(int, message["body"].split(b"/"))
        properties = {
            "replay_origin": f"orders/broker-a:{queue}/{number}",
            "replay_stored_ms": str((20_000 + (number >= 25)) * DAY_MS + number),
        }
        if number % 5:
            by_group.setdefault(message["message_group"], []).append(number)
            assert (message["tag"], message["content_type"]) == (("red", "blue")[number % 2], "text/plain")
            assert message["keys"] == [f"k{number}", "shop"]
            properties |= {"price": str(number), "color": "x"}
        assert message["properties"] == properties
    assert by_group == {f"group-{queue}": [n for n in range(ROWS) if n % 5] for queue in range(QUEUES)}
    assert [told["final"] for told in store.publications] == [False] * 4


def test_the_same_command_sends_nothing_more_until_it_begins_anew(archived: Path, store: Store, tmp_path: Path) -> None:
    """Twice the same, then --again; another choice is another replay."""
    assert replay(store, archived, tmp_path).facts["rows"] == WHOLE
    again = replay(store, archived, tmp_path)
    assert (again.code, again.facts["rows"], again.facts["rows in all runs"]) == (0, 0, WHOLE)
    assert "This replay is done" in again.result["headline"]
    assert len(bodies(store)) == WHOLE
    assert replay(store, archived, tmp_path, "--again").facts["rows"] == WHOLE
    assert len(bodies(store)) == 2 * WHOLE
    assert (
        replay(store, archived, tmp_path, "--filter", "red").facts["rows"]
        == sum(1 for n in range(ROWS) if n % 5 and n % 2 == 0) * QUEUES
    )


def test_a_run_that_fails_at_any_request_is_continued(archived: Path, store: Store, tmp_path: Path) -> None:
    """A refusal at each of the requests of a run in turn: 0 lost, 0 twice, and groups in order."""
    requests = 0
    for failing in range(100):
        del store.faults[:], store.publications[:]
        store.topics.clear()
        state = tmp_path / str(failing)
        store.faults = [set()] * failing + [REFUSED]  # a set refuses nothing here
        if replay(store, archived, state).code == 0:
            requests = failing
            break
        store.faults = []
        ended = replay(store, archived, state)
        assert (ended.code, ended.faults, ended.facts["rows in all runs"]) == (0, [], WHOLE), ended.stderr
        assert sorted(bodies(store)) == EVERYTHING
        for queue in range(QUEUES):
            grouped = [m["body"] for m in store.topics["again"] if m.get("message_group") == f"group-{queue}"]
            assert grouped == [b"%d/%d" % (queue, number) for number in range(ROWS) if number % 5]
    assert requests >= 8, "a query is looked up, and four batches are staged and published"


def test_a_batch_that_was_published_and_not_noted_is_counted_and_not_sent(
    archived: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends between both, at each batch in turn."""
    keep = ReplayState.keep
    for ending in range(1, 5):
        store.topics.clear()
        state = tmp_path / str(ending)

        def failing_keep(self: ReplayState, note: ReplayNote, ending: int = ending) -> None:
            if note.batches == ending:
                raise OSError("killed")
            keep(self, note)

        monkeypatch.setattr(ReplayState, "keep", failing_keep)
        assert replay(store, archived, state).code == 1
        monkeypatch.setattr(ReplayState, "keep", keep)
        ended = replay(store, archived, state)
        assert (ended.code, ended.faults, ended.facts["rows in all runs"]) == (0, [], WHOLE), ended.stderr
        assert sorted(bodies(store)) == EVERYTHING


def test_only_what_was_chosen_is_sent(archived: Path, store: Store, tmp_path: Path) -> None:
    """By tag, by SQL over properties, keys and tags, and by time; nothing chosen is nothing sent."""

    def chosen(*arguments: str) -> list[bytes]:
        store.topics.clear()
        ended = replay(store, archived, tmp_path, *arguments)
        assert ended.code == 0, ended.stderr
        return sorted(bodies(store))

    def those(wanted: Any) -> list[bytes]:
        return sorted(b"%d/%d" % (queue, n) for queue in range(QUEUES) for n in range(ROWS) if wanted(n))

    assert chosen("--filter", "blue || green") == those(lambda n: n % 5 and n % 2)
    assert chosen("--filter", "price > 30 AND TAGS = 'red'") == those(lambda n: n % 5 and n > 30 and n % 2 == 0)
    assert chosen("--filter", "KEYS = 'k7 shop' OR price IS NULL") == those(lambda n: n == 7 or n % 5 == 0)
    day = str(20_001 * DAY_MS)
    assert chosen("--since", day) == those(lambda n: n >= 25)
    assert chosen("--until", day) == those(lambda n: n < 25)
    assert chosen("--since", str(20_001 * DAY_MS + 27), "--until", str(20_001 * DAY_MS + 30)) == those(
        lambda n: 27 <= n < 30
    )
    assert chosen("--since", str(30_000 * DAY_MS)) == []


def test_an_archive_that_grew_is_replayed_to_where_it_was(store: Store, tmp_path: Path) -> None:
    """The plan of a run that failed counts, also where `compact` has joined what it names with what came later."""
    at, state = tmp_path / "archive", tmp_path / "state"
    queues = {"broker-a:0": [record(0, number) for number in range(10)]}
    with record_server(Script(queues=queues)) as script:
        archive(script, at)
        store.faults = [REFUSED]
        assert replay(store, at, state).code == 1
        queues["broker-a:0"] += [record(0, number) for number in range(10, 20)]
        archive(script, at)
    assert run("compact", Script(queues={}, url="http://127.0.0.1:1"), "--archive", str(at), "--delete").code == 0
    ended = replay(store, at, state)
    assert (ended.code, ended.facts["rows"]) == (0, 10), ended.faults
    assert bodies(store) == [b"0/%d" % number for number in range(10)]


def test_a_replay_that_stood_still_for_too_long_is_refused(archived: Path, store: Store, tmp_path: Path) -> None:
    """The brokers have forgotten its query: what they would publish could be there already."""
    store.faults = [set(), set(), set(), set(), set(), REFUSED]
    assert replay(store, archived, tmp_path).code == 1
    (plan,) = tmp_path.glob("replays/*.plan.json")
    (note,) = tmp_path.glob("replays/*.note.json")
    for path, name in ((plan, b'"made_ms": '), (note, b'"at_ms": ')):
        head, _, rest = path.read_bytes().partition(name)
        digits = rest[:13]
        path.write_bytes(head + name + str(int(digits) - PUBLICATION_KEPT_MS).encode() + rest[13:])
    ended = replay(store, archived, tmp_path)
    assert ended.code == 1 and "--again" in ended.stderr
    assert replay(store, archived, tmp_path, "--again").code == 0


def test_a_rate_pauses_between_batches(archived: Path, store: Store, tmp_path: Path) -> None:
    """15 rows a second in a time that only pauses move: batches of what may be sent in two seconds, all on time."""
    now_ms, pauses_s = [1_000], list[float]()

    def pause_s(seconds: float) -> None:
        pauses_s.append(seconds)
        now_ms[0] += round(seconds * 1_000)

    given = ["--archive", str(archived), "--to", "again", "--state", str(tmp_path), "--rate", "15", "--quiet"]
    clock = Clock(now_ms=lambda: now_ms[0], pause_s=pause_s)
    assert run_job(JOB, [*given, "--endpoint", store.url, "--master", "inline"], clock) == 0
    assert pauses_s == [2.0, 2.0, 2.0]
    assert len(bodies(store)) == WHOLE
    assert batches_of(1_000, batch_rows=500, rate=40) == 13


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--to", "again"], "required"),
        (["--to", "again", "--archive", "a", "--from-topics", "b"], "not allowed"),
        (["--to", "again", "--from-topics", "b"], "--state"),
        (["--to", "again", "--archive", "a", "--batch-rows", "0"], "--batch-rows"),
        (["--to", "again", "--archive", "a", "--rate", "-1"], "--rate"),
        (["--to", "again", "--archive", "a", "--since", "20", "--until", "10"], "--until"),
        (["--to", "again", "--from-topics", "b", "--topics", "c", "--state", "s"], "--topics"),
        (["--to", "again", "--archive", "a", "--filter", "price >"], "--filter"),
        (["--to", "no topic", "--archive", "a"], "topic"),
    ],
)
def test_a_wrong_argument_is_named(arguments: list[str], says: str, tmp_path: Path) -> None:
    """Exit code 2, with the argument."""
    ended = run("replay", Script(queues={}, url="http://127.0.0.1:1"), *arguments)
    assert says in ended.stderr
    assert ended.code in {1, 2} and ended.result is None


def test_batches_divide_a_plan_without_a_gap() -> None:
    """Random plans: every offset of every queue is in one slice, in order; tasks keep the order and their limit."""
    for seed in range(200):
        chance = random.Random(seed)
        ends = [chance.randrange(1, 200_000) for _ in range(chance.randrange(1, 9))]
        starts = [chance.randrange(0, end) for end in ends]
        batch_rows = chance.choice([1_000, 30_000, 100_000])
        rows = sum(ends) - sum(starts)
        plan: ReplayPlan = plan_with(starts, ends, batches_of(rows, batch_rows=batch_rows, rate=0))
        reached = dict(zip(range(len(ends)), starts, strict=True))
        for batch in range(plan.batches):
            slices = slices_of(plan, batch)
            tasks = tasks_of(slices)
            assert [found for task in tasks for found in task] == slices, seed
            assert all(sum(found.end - found.start for found in task) <= TASK_ROWS for task in tasks), seed
            assert sum(found.end - found.start for found in slices) <= batch_rows + len(ends), seed
            for found in slices:
                queue = int(found.queue.partition(":")[2])
                assert found.start == reached[queue] < found.end, seed
                reached[queue] = found.end
        assert list(reached.values()) == ends, seed


def test_a_copy_has_the_same_messages_or_is_told(archived: Path, tmp_path: Path) -> None:
    """`verify --copy` of two archives: the same messages in other queues and at other times, one changed, one missing."""

    def copied(name: str, records: list[bytes]) -> Path:
        with record_server(Script(queues={"broker-a:0": records})) as script:
            assert archive(script, tmp_path / name).code == 0
        return tmp_path / name

    def again(queue: int, number: int, **changed: str) -> dict[str, str]:
        origin = {"replay_stored_ms": "5", "replay_origin": f"orders/broker-a:{queue}/{number}"}
        if not number % 5:
            return origin
        properties = {
            "color": "x",
            MESSAGE_GROUP: f"group-{queue}",
            CONTENT_TYPE: "text/plain",
            "price": str(number),
            "KEYS": f"k{number} shop",
            "TAGS": ("red", "blue")[number % 2],
        }
        return origin | properties | changed

    places = [(queue, number) for number in range(ROWS) for queue in range(QUEUES)]
    records = [stored_on(at, b"%d/%d" % place, 20_005 * DAY_MS + at, again(*place)) for at, place in enumerate(places)]
    changed = stored_on(7, b"%d/%d" % places[7], 20_005 * DAY_MS + 7, again(*places[7], color="y"))
    script = Script(queues={}, url="http://127.0.0.1:1")

    def proof(copy: Path) -> Ended:
        return verify(script, archived, "--without-broker", "--copy", str(copy))

    same = proof(copied("same", records))
    assert (same.code, same.faults) == (0, []), same.stderr
    assert "the same messages" in same.result["headline"]
    other = proof(copied("other", [*records[:7], changed, *records[8:]]))
    assert other.code == 1 and "and others" in other.faults[0]
    short = proof(copied("short", records[:-1]))
    assert short.code == 1 and "has 119 messages, the archive 120" in short.faults[0]
    assert (
        verify(script, archived, "--without-broker", "--copy", str(tmp_path / "same"), "--copy-topics", "x").code == 2
    )
