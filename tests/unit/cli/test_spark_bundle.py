"""The zip for `spark-submit --py-files`: whole, the same each time, and enough for a Python without TernMQ."""

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

from typer.testing import CliRunner

from tern_cli.app import app
from tern_cli.spark_bundle import LIBRARIES, PACKAGES, write_bundle

# The source itself needs PySpark, which not every installation has: `make spark-cluster` runs it from the zip.
_IMPORTS = """
import sys
from importlib import import_module
for name in ("tern_wire.records.columns", "tern_client", "tern_http.pool", "tern_jobs"):
    found = import_module(name).__file__
    assert found.startswith(sys.argv[1]), found
"""


def test_the_zip_is_the_same_each_time_and_has_every_module(tmp_path: Path) -> None:
    """Bytes, and one file for each of the sources."""
    one, two = tmp_path / "one.zip", tmp_path / "deep" / "two.zip"
    assert write_bundle(one) == write_bundle(two)
    assert one.read_bytes() == two.read_bytes()
    names = zipfile.ZipFile(one).namelist()
    assert {name.partition("/")[0] for name in names} == set(PACKAGES)
    assert all(name.endswith(".py") for name in names)


def test_the_command_says_what_executors_need(tmp_path: Path) -> None:
    """`ternmq spark zip`."""
    told = CliRunner().invoke(app, ["spark", "zip", str(tmp_path / "ternmq-spark.zip")])
    assert told.exit_code == 0, told.output
    assert all(library in told.output for library in LIBRARIES)


def test_a_python_without_ternmq_runs_what_is_in_the_zip(tmp_path: Path) -> None:
    """`-S`: no .pth file leads to this repository; the libraries are on its path."""
    bundle = tmp_path / "ternmq-spark.zip"
    write_bundle(bundle)
    done = subprocess.run(
        [sys.executable, "-S", "-c", _IMPORTS, str(bundle)],
        env={"PYTHONPATH": f"{bundle}:{sysconfig.get_path('purelib')}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
