"""`make packages-test`: builds both distributions, installs them in fresh environments outside the repository, and runs each there.

Three installations: the SDK alone, everything, everything with Spark. The mesh of the second serves the other two. Prints sizes and times. Exit code
0: all of it works; 1: something does not. --keep leaves the environments for a look.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.packages import builds, programs
from tests.packages.environment import CommandFailed, Environment, run
from tests.support.mesh.mesh import free_port_base

CONSTRAINTS = builds.ROOT / "constraints.txt"
# What `pip install ternmq-client` may bring: itself and its dependencies, which need nothing themselves.
CLIENT = {"ternmq-client", "orjson", "msgspec", "httptools"}
SPARK_MESSAGES = 1_000
_UP_TIMEOUT_S = 180
_COMMAND_TIMEOUT_S = 60


class Run:
    """One run: its folder, its table, the mesh that it started. Owner: `main`."""

    def __init__(self, folder: Path, table: Table) -> None:
        self.folder, self._table = folder, table
        # No checkout and no environment: what runs here finds what is installed, and nothing else.
        self.elsewhere = folder / "elsewhere"
        self.elsewhere.mkdir()
        self.wheels: dict[str, Path] = {}
        self._mesh: Environment | None = None
        self._endpoint = ""

    def row(self, what: str, work: Callable[[], str]) -> None:
        """Do *work* and show what it saw, and how long it took."""
        began_s = time.monotonic()
        seen = work()
        self._table.add_row(what, seen, f"{time.monotonic() - began_s:.1f}")

    def build(self) -> str:
        """Both wheels from the tree, and again from source distributions."""
        builder = self._environment("builder")
        self.wheels = builds.build_wheels(builder, self.folder / "wheels")
        files = builds.compare(self.wheels, builds.build_from_sources(builder, self.folder / "sources"))
        for name, wheel in self.wheels.items():
            told = builds.metadata(wheel)
            if missing := [
                each for each in ("License-Expression: Apache-2.0", "License-File: LICENSE") if each not in told
            ]:
                raise builds.BuildDiffers(f"{name}: its metadata lacks {missing}")
        size_mb = sum(path.stat().st_size for path in self.wheels.values()) / 1e6
        return f"2 wheels, {files} files, {size_mb:.1f} MB; the same from the source distributions"

    def whole(self) -> str:
        """Everything: the mesh comes up, a message goes through it by the command line."""
        environment = self._environment("whole")
        took_s = environment.install(*self.wheels.values())
        self._mesh = environment
        port_base = free_port_base(random.Random())
        self._endpoint = f"http://127.0.0.1:{port_base}"
        version = self._ternmq("--version").split()[1]
        self._ternmq("up", "--data-dir", self.folder / "mesh", "--port-base", str(port_base), within_s=_UP_TIMEOUT_S)
        self._ternmq("send", "orders", "hello", "--endpoint", self._endpoint)
        received = self._ternmq("recv", "orders", "billing", "--wait", "10s", "--endpoint", self._endpoint).strip()
        expect(received, "hello")
        return f"ternmq {version}: up, send, recv; {weight(environment)}, installed in {took_s:.0f} s"

    def client(self) -> str:
        """The SDK alone: small, typed, without a server, and its first example works."""
        environment = self._environment("client")
        took_s = environment.install(self.wheels["ternmq-client"])
        expect(environment.sizes().keys(), CLIENT)
        for module in ("tern_broker", "tern_cli", "fastapi", "numpy"):
            command = [environment.python, "-c", f"import {module}"]
            run(command, self.elsewhere, within_s=_COMMAND_TIMEOUT_S, expected=1)
        programs.read_types(environment, self.elsewhere)
        programs.run_first_example(environment, self.elsewhere, self._endpoint)
        return f"its README's example, mypy --strict; {weight(environment)}, installed in {took_s:.0f} s"

    def spark(self) -> str:
        """Spark: a batch read of a topic has every message once, and the jobs are there."""
        environment = self._environment("spark")
        took_s = environment.install(self.wheels["ternmq-client"], f"{self.wheels['ternmq']}[spark]")
        programs.send_many(environment, self.elsewhere, self._endpoint, SPARK_MESSAGES)
        found = programs.read_in_spark(environment, self.elsewhere, self._endpoint)
        expect(found, [SPARK_MESSAGES, SPARK_MESSAGES])
        archived = programs.archive_in_spark(environment, self.elsewhere, self._endpoint)
        expect(archived, [SPARK_MESSAGES, SPARK_MESSAGES])
        return f"{found[0]} rows of {SPARK_MESSAGES} messages, archived and verified; {weight(environment)}, installed in {took_s:.0f} s"

    def stop(self) -> None:
        """Stop the mesh, if it was started."""
        if self._mesh is not None:
            self._ternmq("down", "--data-dir", self.folder / "mesh")

    def _environment(self, name: str) -> Environment:
        return Environment(self.folder / name, sys.executable, CONSTRAINTS)

    def _ternmq(self, *arguments: str | Path, within_s: float = _COMMAND_TIMEOUT_S) -> str:
        assert self._mesh is not None, "everything is installed first"
        return run([self._mesh.program("ternmq"), *arguments], self.elsewhere, within_s=within_s)


def expect(found: object, expected: object) -> None:
    """CommandFailed unless they are equal."""
    if found != expected:
        raise CommandFailed(f"expected {expected}, found {found}")


def weight(environment: Environment) -> str:
    """How much is installed there."""
    sizes = environment.sizes()
    return f"{len(sizes)} distributions, {sum(sizes.values()) / 1e6:.1f} MB"


def main() -> None:
    """Everything in order; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.packages", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the environments, and say where they are")
    parser.add_argument("--without-spark", action="store_true", help="leave out the download of PySpark")
    asked = parser.parse_args()
    if not asked.without_spark and shutil.which("java") is None:
        sys.exit("No java on the PATH: install Java 17, for example openjdk-17-jre-headless, or say --without-spark.")
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # a time limit stops the mesh, too
    table = Table("installation", "seen", "s", title="Packages, installed outside the repository")
    folder = Path(tempfile.mkdtemp(prefix="ternmq-packages-"))
    made, failure = Run(folder, table), ""
    try:
        made.row("builds", made.build)
        made.row("ternmq", made.whole)
        made.row("ternmq-client", made.client)
        if not asked.without_spark:
            made.row("ternmq[spark]", made.spark)
    except (CommandFailed, builds.BuildDiffers) as error:
        failure = str(error)
    finally:
        made.stop()
        if not asked.keep:
            shutil.rmtree(folder)
    Console(width=140).print(table)
    if asked.keep:
        print(f"Kept: {folder}")
    sys.exit(f"FAILED: {failure}" if failure else 0)


if __name__ == "__main__":
    main()
