"""A standalone Spark cluster from the pip package: a master, and workers of one core each, that can be killed.

Executors run a Python that has the libraries, and nothing of TernMQ: what they run comes with `--py-files`.
"""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import sysconfig
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import pyspark

from tests.support.mesh.mesh import eventually

ROOT = Path(__file__).resolve().parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
_START_S = 120
# For short jobs: the client compiler and the serial collector start faster.
_JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_HOST = "127.0.0.1"


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def bare_python(folder: Path) -> Path:
    """A command that is this interpreter with its libraries, and without the packages of this repository."""
    command = folder / "bare-python"
    libraries = sysconfig.get_path("purelib")
    # Without `site`, no .pth file leads to the repository.
    command.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{libraries}" exec "{sys.executable}" -S "$@"\n', encoding="utf-8"
    )
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    return command


@dataclass(slots=True)
class SparkCluster:
    """Processes of a cluster. Owner: the `with` block of `running_cluster`."""

    folder: Path
    port: int
    ui_port: int
    environment: Mapping[str, str]
    _processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    _logs: list[TextIO] = field(default_factory=list)

    @property
    def master(self) -> str:
        """Its URL."""
        return f"spark://{_HOST}:{self.port}"

    def start_master(self) -> None:
        """Start the master, and wait until it answers."""
        options = ["--host", _HOST, "--port", str(self.port), "--webui-port", str(self.ui_port)]
        self._start("master", "org.apache.spark.deploy.master.Master", *options)
        eventually(lambda: self._state() is not None, within_s=_START_S, what="the master answers")

    def start_worker(self, name: str, host: str = _HOST) -> None:
        """Start a worker of one core at a loopback address, and wait until the master knows it."""
        before = self.alive_workers()
        options = ["--host", host, "--webui-port", "0", "-c", "1", "-m", "1g", "-d", str(self.folder / name)]
        self._start(name, "org.apache.spark.deploy.worker.Worker", *options, self.master)
        eventually(lambda: self.alive_workers() > before, within_s=_START_S, what=f"{name} is known")

    def alive_workers(self) -> int:
        """Workers that the master takes for alive."""
        state = self._state() or {"workers": []}
        return sum(1 for worker in state["workers"] if worker["state"] == "ALIVE")

    def kill_worker(self, name: str) -> None:
        """SIGKILL for the worker and its executors: the machine is gone."""
        process = self._processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)

    def stop(self) -> None:
        """End everything."""
        for process in self._processes.values():
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for process in self._processes.values():
            process.wait(30)
        for log in self._logs:
            log.close()

    def submit(self, script: Path, *arguments: str, bundle: Path) -> "subprocess.Popen[str]":
        """`spark-submit` of a job, its executors fed by *bundle*; stdout is a pipe, stderr goes to a log."""
        settings = {
            "spark.executor.memory": "640m",
            "spark.ui.enabled": "false",
            "spark.driver.host": _HOST,
            "spark.driver.bindAddress": _HOST,
            "spark.task.maxFailures": "8",
            "spark.driver.extraJavaOptions": _JVM_OPTIONS,
            "spark.executor.extraJavaOptions": _JVM_OPTIONS,
        }
        command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", self.master, "--py-files", str(bundle)]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        log = self._log(script.stem)
        return subprocess.Popen(
            [*command, str(script), *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )

    def _start(self, name: str, kind: str, *options: str) -> None:
        log = self._log(name)
        command = [str(SPARK_HOME / "bin" / "spark-class"), kind, *options]
        # A group of its own: killed with everything that it has started.
        self._processes[name] = subprocess.Popen(
            command, env=self.environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )

    def _log(self, name: str) -> TextIO:
        log = (self.folder / f"{name}.log").open("a", encoding="utf-8")
        self._logs.append(log)
        return log

    def _state(self) -> Any:
        try:
            with urllib.request.urlopen(f"http://{_HOST}:{self.ui_port}/json/", timeout=5) as answer:
                return json.load(answer)
        except (OSError, ValueError):  # another process may have had the port a moment ago
            return None


@contextmanager
def running_cluster(folder: Path, *, workers: int) -> Iterator[SparkCluster]:
    """A cluster for the length of a block; workers are `worker-1` and so on."""
    folder.mkdir(parents=True, exist_ok=True)
    python = bare_python(folder)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_CONF_DIR": str(ROOT / "spark" / "conf"),
        "SPARK_LOCAL_IP": _HOST,
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_DAEMON_MEMORY": "256m",
    }
    cluster = SparkCluster(folder, free_port(), free_port(), environment)
    try:
        cluster.start_master()
        for number in range(1, workers + 1):
            cluster.start_worker(f"worker-{number}")
        yield cluster
    finally:
        cluster.stop()
