"""The programs of docs/spark.md, each as a file of its own, against a scripted proxy over real HTTP."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.client.record_server import Script, record_server, stored
from tests.support.documents.pages import blocks

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from tern_spark.session import java_command
from tests.support.client.job_runs import archive

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = [
    block for block in blocks(ROOT / "docs" / "spark.md") if block.reason == "spark" and block.language == "python"
]
# What each prints, of 300 messages in the first queue and 200 in the second.
PRINTED = ["500 messages", "499 messages from there on", "500 messages are archived"]
pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(java_command(os.environ) is None, reason="Spark needs Java"),
    pytest.mark.timeout(600),
]


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_of_the_page_runs_as_a_file(tmp_path: Path, number: int) -> None:
    """It ends by itself and counts what is there; only the endpoint is another one."""
    queues = {
        f"broker-a:{queue}": [stored(at, b"m", {"TAGS": "red"}, queue=queue) for at in range(300 - 100 * queue)]
        for queue in (0, 1)
    }
    with record_server(Script(queues=queues)) as script:
        archive(script, tmp_path / "archive")
        program = tmp_path / "program.py"
        program.write_text(PROGRAMS[number].text.replace("http://127.0.0.1:8080", script.url), "utf-8")
        paths = [str(ROOT / "libs"), str(ROOT / "spark"), os.environ.get("PYTHONPATH", "")]
        given = {"PYTHONPATH": os.pathsep.join(paths), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(
            [sys.executable, program],
            env={**os.environ, **given},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] == PRINTED[number]


def test_every_program_of_the_page_is_expected() -> None:
    """A further one prints something, too."""
    assert len(PROGRAMS) == len(PRINTED)
