"""One run of the flights demo, from the first offset to the last comparison.

Owns the order of the steps and the result file.
"""

import asyncio
import gc
import json
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tern_cli.demo.bars import RunBars
from tern_cli.demo.consuming import INVISIBLE_MS, ReceiveLog, consume_all
from tern_cli.demo.flights import FlightMessages, daily_table, delay_table, load_flights
from tern_cli.demo.leader import LeaderKill, broker_processes
from tern_cli.demo.producing import POLICY, SendLog, plan_sends, send_batches, send_singly
from tern_cli.demo.report import DemoReport, show_report
from tern_cli.demo.spark_job import SparkOutcome, run_spark_job
from tern_cli.demo.traffic import Traffic
from tern_cli.demo.verify import (
    RunFigures,
    count_differences,
    daily_differences,
    id_differences,
    table_differences,
)
from tern_cli.failures import CommandFailed, first_of
from tern_cli.mesh.files import MeshFiles
from tern_client import Admin, RetryPolicy
from tern_wire.errors import TopicConflict

TOPIC = "flights"
QUEUES = 8
GAP_MAX_MS = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """Options of one run. *count* None means all flights."""

    endpoints: Sequence[str]
    data_dir: str
    count: int | None
    with_spark: bool
    kills_leader: bool
    as_json: bool


def run_demo(settings: DemoSettings) -> None:
    """Run the demo, write .tern/demo/flights.json, show the report.
    CommandFailed when any number differs.
    """
    began_ms = now_ms()
    files = MeshFiles(settings.data_dir)
    out = files.root / "demo"
    if settings.kills_leader:
        broker_processes(files.read_mesh())  # refuse now if no leader could be killed later
    bars = RunBars(shown=not settings.as_json)
    bars.say("Loading the flights of 2013 ...")
    frame = load_flights(settings.count)
    messages = FlightMessages(frame, run := secrets.token_hex(6))
    # Six million values stay: the garbage collector need not scan them again while messages are
    # sent.
    gc.freeze()
    with bars.running(len(messages), with_spark=settings.with_spark):
        try:
            traffic = asyncio.run(_exchange(settings, messages, run, files, bars))
        except ExceptionGroup as group:
            raise first_of(group) from group
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        spark = None
        if settings.with_spark:
            bars.spark_begins()
            spark = run_spark_job(settings.endpoints, TOPIC, traffic.starting, traffic.ending, out)
            bars.spark_ended(spark.rows)
    expected = delay_table(frame)
    figures = _figures(len(messages), traffic, spark)
    differences = _differences(figures, traffic)
    if spark:
        differences += table_differences(spark.table, expected)
        differences += daily_differences(spark.daily, daily_table(frame), spark.repeated)
    result = result_document(figures, traffic, seconds=(now_ms() - began_ms) / 1_000)
    result_path = out / "flights.json"
    result_path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    show_report(
        DemoReport(
            endpoint=settings.endpoints[0],
            topic=TOPIC,
            figures=figures,
            traffic=traffic,
            spark=spark,
            table=expected,
            result=result,
            result_path=result_path,
            differences=differences,
        ),
        as_json=settings.as_json,
    )
    if differences:
        raise CommandFailed("The demo's numbers do not agree", "What differs:", lines=differences)


async def _exchange(
    settings: DemoSettings, messages: FlightMessages, run: str, files: MeshFiles, bars: RunBars
) -> Traffic:
    """Send everything while a new group receives everything."""
    sends, receives = SendLog(now_ms=now_ms, milestone=len(messages) // 2), ReceiveLog(now_ms=now_ms)
    plan = plan_sends(len(messages))
    sent_all = asyncio.Event()
    kill = LeaderKill(files)
    group = f"flights-{run}"
    async with Admin(settings.endpoints, policy=RetryPolicy(deadline_ms=10_000)) as admin:
        # An existing topic that has grown since serves as well.
        with suppress(TopicConflict):
            await admin.create_topic(TOPIC, QUEUES)
        starting = {queue.queue: queue.max_offset for queue in await admin.offsets(TOPIC)}
        await admin.create_group(group, invisible_ms=INVISIBLE_MS)
        await admin.commit_offsets(group, TOPIC, starting)

    async def send_all() -> float:
        try:
            sends.begin()
            await send_batches(settings.endpoints, TOPIC, messages, plan, sends)
            batch_seconds = sends.seconds
            await send_singly(settings.endpoints, TOPIC, messages, plan, sends)
            return batch_seconds
        finally:
            sent_all.set()

    async def kill_in_the_middle() -> None:
        await sends.milestone_reached.wait()
        victim = await kill.kill()
        bars.say(f"SIGKILL to {victim.name} (pid {victim.pid}), the leader, after {sends.confirmed:,} sends")

    follow = asyncio.create_task(bars.follow(sends, receives))
    try:
        async with asyncio.TaskGroup() as work:
            sending = work.create_task(send_all())
            work.create_task(consume_all(settings.endpoints, TOPIC, group, receives, sends=sends, sent_all=sent_all))
            if settings.kills_leader:
                work.create_task(kill_in_the_middle())
    finally:
        follow.cancel()
        bars.update(sends, receives)
    async with Admin(settings.endpoints, policy=POLICY) as admin:
        ending = {queue.queue: queue.max_offset for queue in await admin.offsets(TOPIC)}
        committed = await admin.group_offsets(group, TOPIC)
    back_after_ms = 0.0
    if kill.victim:
        bars.say(f"Waiting for {kill.victim.name} to come back and catch up ...")
        back_after_ms = await kill.wait_until_caught_up(now_ms)
    return Traffic(
        group=group,
        starting=starting,
        ending=ending,
        committed=committed,
        sends=sends,
        receives=receives,
        batch_seconds=sending.result(),
        killed=kill.victim.name if kill.victim else "",
        back_after_ms=back_after_ms,
    )


def _figures(flights: int, traffic: Traffic, spark: SparkOutcome | None) -> RunFigures:
    sends, receives, starting = traffic.sends, traffic.receives, traffic.starting
    return RunFigures(
        flights=flights,
        sent=sends.confirmed,
        received=receives.received,
        acked=len(receives.acked_ids),
        redelivered=receives.redelivered,
        distinct_ids=len(receives.ids),
        range_rows=sum(end - starting.get(queue, 0) for queue, end in traffic.ending.items()),
        settled_rows=sum(traffic.committed.get(queue, start) - start for queue, start in starting.items()),
        spark_rows=spark.rows if spark else None,
    )


def _differences(figures: RunFigures, traffic: Traffic) -> list[str]:
    found = count_differences(figures) + id_differences(traffic.sends.ids, traffic.receives.ids)
    if traffic.killed and traffic.sends.longest_gap_ms > GAP_MAX_MS:
        found.append(
            f"sends were interrupted for {traffic.sends.longest_gap_ms:,.0f} ms; {GAP_MAX_MS:,} ms are allowed"
        )
    return found


def result_document(figures: RunFigures, traffic: Traffic, *, seconds: float) -> dict[str, Any]:
    """Return the figures of flights.json.
    `spark_rows` is null without Spark; rates are per second of sending and of receiving.
    """
    return {
        "sent": figures.sent,
        "received": figures.received,
        "acked": figures.acked,
        "redelivered": figures.redelivered,
        "distinct_ids": figures.distinct_ids,
        "spark_rows": figures.spark_rows,
        "seconds": round(seconds, 3),
        "send_per_s": round(figures.sent / max(traffic.sends.seconds, 1e-3), 1),
        "receive_per_s": round(figures.received / max(traffic.receives.seconds, 1e-3), 1),
        "leader_killed": bool(traffic.killed),
        "longest_send_gap_ms": round(traffic.sends.longest_gap_ms, 1),
    }


def now_ms() -> float:
    """Return the time of the run's one clock: monotonic, ms."""
    return time.monotonic() * 1_000
