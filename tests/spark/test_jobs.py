"""Jobs as they are run: `ternmq spark run` and `spark-submit`, processes of their own with a real Spark session."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.client.record_server import Script, record_server

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from tern_spark.session import java_command
from tests.support.client.job_runs import two_days

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(java_command(os.environ) is None, reason="Spark needs Java"),
    pytest.mark.timeout(300),
]
ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


def ended(command: list[str | Path], **environment: str) -> subprocess.CompletedProcess[str]:
    """*command* in this environment."""
    given = {**os.environ, "PYSPARK_PYTHON": sys.executable, **environment}
    return subprocess.run(command, capture_output=True, text=True, env=given, timeout=240, check=False)


def test_an_archive_is_written_and_verified_by_spark(tmp_path: Path) -> None:
    """`ternmq spark run archive`, then `spark-submit verify.py`; then a file is damaged and the exit code is 1."""
    queues = {f"broker-a:{queue}": two_days(queue, 100) for queue in range(4)}
    archive = tmp_path / "archive"
    with record_server(Script(queues=queues, page_rows_max=30)) as script:
        given = ["--endpoint", script.url, "-o", "json"]
        run: list[str | Path] = [
            BIN / "ternmq",
            "spark",
            "run",
            "archive",
            "--topics",
            "orders",
            "--to",
            archive,
            *given,
        ]
        written = ended([*run, "--rows-per-file", "30", "--html", tmp_path / "archive.html"])
        assert written.returncode == 0, written.stderr
        assert json.loads(written.stdout)["facts"]["rows"] == 400
        assert "archive: archives: 16 of 16 tasks" in written.stderr
        assert "<svg" in (tmp_path / "archive.html").read_text("utf-8")
        submit: list[str | Path] = [
            BIN / "spark-submit",
            "--master",
            "local[2]",
            ROOT / "spark/jobs/verify.py",
            "--archive",
            archive,
        ]
        quiet = {"SPARK_CONF_DIR": str(ROOT / "spark/conf"), "SPARK_LOCAL_IP": "127.0.0.1"}
        proved = ended([*submit, *given], **quiet)
        assert proved.returncode == 0, proved.stderr
        assert json.loads(proved.stdout)["facts"]["compared rows"] == 400
        (damaged,) = archive.rglob(f"orders.broker-a.2.{60:020}-*")
        damaged.write_bytes(b"x" + damaged.read_bytes()[1:])
        faulty = ended([BIN / "ternmq", "spark", "run", "verify", "--archive", archive, *given])
        assert faulty.returncode == 1, faulty.stderr
        assert damaged.name in json.loads(faulty.stdout)["faults"][0]
        missing = ended([BIN / "ternmq", "spark", "run", "archive", "--topics", "orders", "--to", "/proc/none", *given])
    assert missing.returncode == 1
    assert "Traceback" not in missing.stderr
