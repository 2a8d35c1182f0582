"""The programs of docs/spark.md, each as a file of its own, against a scripted proxy over real HTTP."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.client.batch_server import batch_server
from tests.support.client.record_server import Script, record_server, stored
from tests.support.documents.pages import blocks

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from tern_spark.session import JVM_OPTIONS, SETTINGS, java_command
from tests.support.client.job_runs import archive

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = [
    block for block in blocks(ROOT / "docs" / "spark.md") if block.reason == "spark" and block.language == "python"
]
# What each prints, of 300 messages in the first queue and 200 in the second.
PRINTED = [
    "500 messages",
    "500 messages are archived",
    "499 messages from there on",
    "1000 messages written",
    "500 messages are archived",
    "500 messages are archived",
]
pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(java_command(os.environ) is None, reason="Spark needs Java"),
    pytest.mark.timeout(600),
]


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_of_the_page_runs_as_a_file(tmp_path: Path, number: int) -> None:
    """It ends by itself and counts what is there, or what it has stored; only the endpoint is another one."""
    text = PROGRAMS[number].text
    if ".write." in text:
        with batch_server() as store:
            done = run(tmp_path, text, store.url)
        assert len(store.bodies()) == 1_000
    else:
        queues = {
            f"broker-a:{queue}": [stored(at, b"m", {"TAGS": "red"}, queue=queue) for at in range(300 - 100 * queue)]
            for queue in (0, 1)
        }
        with record_server(Script(queues=queues)) as script:
            if "archived_files" in text or "DeltaTable" in text:
                archive(script, tmp_path / "archive", "--catalog")
            done = run(tmp_path, text, script.url)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] == PRINTED[number]


def run(tmp_path: Path, text: str, url: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the page against the proxy at *url*."""
    conf = tmp_path / "conf"
    conf.mkdir()
    # Those of our own short jobs.
    settings = "".join(f"{name} {value}\n" for name, value in SETTINGS.items())
    (conf / "spark-defaults.conf").write_text((ROOT / "spark/conf/spark-defaults.conf").read_text() + settings, "utf-8")
    program = tmp_path / "program.py"
    program.write_text(text.replace("http://127.0.0.1:8080", url), "utf-8")
    paths = [str(ROOT / "libs"), str(ROOT / "spark"), os.environ.get("PYTHONPATH", "")]
    given = {"PYTHONPATH": os.pathsep.join(paths), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    given |= {"SPARK_CONF_DIR": str(conf), "JAVA_TOOL_OPTIONS": JVM_OPTIONS}
    return subprocess.run(
        [sys.executable, program],
        env={**os.environ, **given},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def test_every_program_of_the_page_is_expected() -> None:
    """A further one prints something, too."""
    assert len(PROGRAMS) == len(PRINTED)
