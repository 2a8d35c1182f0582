"""The flights job as it is run: a process of its own that reads a topic over HTTP and leaves Parquet, a table and a plot."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.client.record_server import Script, record_server, stored
from tests.support.mesh.mesh import running_mesh

pytest.importorskip("pyspark", reason="the spark extra is not installed")
pytest.importorskip("matplotlib", reason="the demo extra is not installed")

import pandas as pd

from tern_cli.demo.flights import FlightMessages, daily_table, delay_table, load_flights
from tern_cli.demo.verify import daily_differences, table_differences
from tern_client import BlockingAdmin, BlockingProducer
from tern_spark.session import java_command

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(java_command(os.environ) is None, reason="Spark needs Java"),
    pytest.mark.timeout(600),
]
ROOT = Path(__file__).resolve().parents[2]
JOB = ("-m", "tern_jobs.flights")
QUEUES = 3
# Messages of somebody else, in front of the run's own in every queue.
STRANGERS = 5


def run_job(endpoint: str, out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """The job in this interpreter, importing from the source tree."""
    paths = os.pathsep.join([str(ROOT / "libs"), str(ROOT / "spark"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, *JOB, "--endpoint", endpoint, "--topic", "flights", "--out", str(out), *more]
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240, check=False)


def test_the_job_reports_the_range_it_was_given_as_pandas_does(tmp_path: Path) -> None:
    """1,200 flights of all months, many cancelled, behind other messages: rows, table, Parquet and plot are right."""
    frame = load_flights()
    some = pd.concat([frame[frame["dep_delay"].isna()].iloc[::28], frame.iloc[::376]]).reset_index(drop=True)
    messages = FlightMessages(some, "run").batch(0, len(some))
    queues: dict[str, list[bytes]] = {}
    for number in range(QUEUES):
        bodies = [b"no flight"] * STRANGERS + [message.body for message in messages[number::QUEUES]]
        queues[f"broker-a:{number}"] = [stored(at, body, topic="flights") for at, body in enumerate(bodies)]
    carriers = tmp_path / "carriers.json"
    carriers.write_text('{"UA": "United"}')
    starting = json.dumps({"flights": dict.fromkeys(queues, STRANGERS)})
    with record_server(Script(queues=queues, topic="flights", page_rows_max=100)) as script:
        ended = run_job(
            script.url, tmp_path / "out", "--no-stream", "--starting", starting, "--carriers", str(carriers)
        )
    assert ended.returncode == 0, ended.stderr
    summary = json.loads(ended.stdout.splitlines()[-1])
    assert summary["spark_rows"] == len(some)
    table = json.loads(Path(summary["report_json"]).read_bytes())
    assert table_differences(table, delay_table(some)) == []
    assert pd.read_parquet(summary["report_parquet"]).shape == (len(table), 6)
    flights = pd.read_parquet(summary["flights_parquet"])
    assert sorted(flights["tailnum"].dropna()) == sorted(some["tailnum"].dropna())
    assert int(flights["dep_delay"].isna().sum()) == int(some["dep_delay"].isna().sum())
    assert Path(summary["plot_png"]).read_bytes().startswith(b"\x89PNG")


def test_a_message_that_is_no_flight_fails_the_job(tmp_path: Path) -> None:
    """A body that cannot be read must not become a row of NULLs."""
    with record_server(Script(queues={"broker-a:0": [stored(0, b"no flight")]}, topic="flights")) as script:
        ended = run_job(script.url, tmp_path, "--no-stream")
    assert ended.returncode == 1
    assert "no flight" in ended.stderr or "MALFORMED" in ended.stderr


def test_the_stream_writes_daily_delays_into_a_topic_as_pandas_counts_them(tmp_path: Path) -> None:
    """1,000 flights of a mesh in micro-batches of 400: a message for each carrier and day that is complete is pandas' row, none is there twice."""
    frame = load_flights().iloc[::336].head(1_000).reset_index(drop=True)
    with running_mesh(tmp_path / "mesh") as mesh:
        with BlockingAdmin(mesh.endpoint) as admin, BlockingProducer(mesh.endpoint) as producer:
            admin.create_topic("flights", 3)
            producer.send_batch("flights", FlightMessages(frame, "run").batch(0, len(frame)))
        ended = run_job(mesh.endpoint, tmp_path / "out", "--rows-per-trigger", "400")
    assert ended.returncode == 0, ended.stderr
    summary = json.loads(ended.stdout.splitlines()[-1])
    days = json.loads(Path(summary["daily_delays_json"]).read_bytes())
    assert daily_differences(days, daily_table(frame), summary["stream_repeated"]) == []
    assert summary["stream_batches"] == 3
    assert len(days) > 500
