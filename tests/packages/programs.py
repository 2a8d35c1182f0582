"""The programs that a user of an installation would write first, run in its environment."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

from tests.packages.builds import ROOT
from tests.packages.environment import CommandFailed, Environment, outside, run

README = ROOT / "libs/README.md"
# Where the example in the README finds its mesh.
README_ENDPOINT = "http://127.0.0.1:8080"
_EXAMPLE_TIMEOUT_S = 60
_SPARK_TIMEOUT_S = 300

_TYPED = """
from tern_client import BlockingProducer

with BlockingProducer("http://127.0.0.1:1") as producer:
    reveal_type(producer.send("orders", b"hello"))
"""
_MISTYPED = _TYPED.replace('"orders"', "4711")
_SENDING = """
import sys
from tern_client import BlockingAdmin, BlockingProducer, OutgoingMessage

with BlockingAdmin(sys.argv[1]) as admin:
    admin.create_topic("columns", 4)
with BlockingProducer(sys.argv[1]) as producer:
    producer.send_batch("columns", [OutgoingMessage(body=str(n).encode()) for n in range(int(sys.argv[2]))])
"""
_READING = """
import json, sys
from pyspark.sql import SparkSession
from tern_spark import register

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
frame = spark.read.format("ternmq").option("endpoint", sys.argv[1]).option("subscribe", "columns").load()
print(json.dumps([frame.count(), frame.selectExpr("cast(body as string) as text").distinct().count()]))
spark.stop()
"""


def read_types(environment: Environment, folder: Path) -> None:
    """`mypy --strict`, of the checkout's own environment, takes types from what is installed: it accepts a right program and refuses a wrong one."""
    mypy = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--python-executable",
        environment.python,
        "--cache-dir",
        str(folder / "mypy"),
    ]
    for name, source, expected, seen in (
        ("typed.py", _TYPED, 0, r"Revealed type is .*tern_(wire|client)\."),
        ("mistyped.py", _MISTYPED, 1, r"\[arg-type\]"),
    ):
        (folder / name).write_text(source, "utf-8")
        told = run([*mypy, name], folder, within_s=300, expected=expected)
        if not re.search(seen, told):
            raise CommandFailed(f"mypy of {name} says nothing like {seen}: {told}")


def run_first_example(environment: Environment, folder: Path, endpoint: str) -> None:
    """The Python of the SDK's README, as it stands there but for the address: it prints the message that it sent, and ends in order on SIGTERM."""
    found = re.search(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    if found is None or README_ENDPOINT not in found[1]:
        raise CommandFailed(f"{README.name} has no example that asks {README_ENDPOINT}")
    (folder / "example.py").write_text(found[1].replace(README_ENDPOINT, endpoint), "utf-8")
    command = [environment.python, "example.py"]
    with subprocess.Popen(
        command, cwd=folder, env=outside(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as example:
        timer = threading.Timer(_EXAMPLE_TIMEOUT_S, example.kill)
        timer.start()
        assert example.stdout is not None
        if "hello" in (first := example.stdout.readline()):
            example.send_signal(signal.SIGTERM)
        _, said = example.communicate()
        timer.cancel()
    if "hello" not in first or example.returncode != 128 + signal.SIGTERM:
        raise CommandFailed(f"the example printed {first!r} and ended with {example.returncode}: {said[-2000:]}")


def send_many(environment: Environment, folder: Path, endpoint: str, count: int) -> None:
    """*count* different messages in one batch."""
    command = [environment.python, "-c", _SENDING, endpoint, str(count)]
    run(command, folder, within_s=_EXAMPLE_TIMEOUT_S)


def read_in_spark(environment: Environment, folder: Path, endpoint: str) -> list[int]:
    """How many rows a batch read of that topic has, and how many different bodies."""
    # As in an activated environment: Spark starts its workers with the python3 of the path.
    path = os.pathsep.join([str(environment.folder / "bin"), os.environ["PATH"]])
    told = run([environment.python, "-c", _READING, endpoint], folder, within_s=_SPARK_TIMEOUT_S, PATH=path)
    counts: list[int] = json.loads(told.splitlines()[-1])
    return counts


def archive_in_spark(environment: Environment, folder: Path, endpoint: str) -> list[int]:
    """How many rows the installed job `archive` has written of that topic, and how many of them `verify` has compared with the broker."""
    given = ["--endpoint", endpoint, "-o", "json", "--quiet"]
    ternmq = environment.program("ternmq")
    archive: list[str | Path] = [ternmq, "spark", "run", "archive", "--topics", "columns", "--to", "archive", *given]
    written = json.loads(run(archive, folder, within_s=_SPARK_TIMEOUT_S))["facts"]["rows"]
    verify: list[str | Path] = [ternmq, "spark", "run", "verify", "--archive", "archive", "--master", "inline", *given]
    return [written, json.loads(run(verify, folder, within_s=_SPARK_TIMEOUT_S))["facts"]["compared rows"]]
