"""A real Apache RocketMQ on loopback: its jars, a name server and one broker on a copy of a store, and its own client.

Owner of every process that it starts; all of them are gone when its context ends, whatever happened. Settings that are not
RocketMQ's defaults keep the broker from adding or removing messages on its own, and from other addresses than 127.0.0.1.
"""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tern_cli.mesh.process_table import port_is_free

HERE = Path(__file__).parent
HOST = "127.0.0.1"
# From the first port of a range: name server, broker's second port, broker, replication.
PORTS = (0, 3, 5, 6)
START_WITHIN_S, STOP_WITHIN_S, ANSWER_WITHIN_S = 60.0, 60.0, 120.0
JAVA = (
    "java",
    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m", "-XX:MaxDirectMemorySize=2g", "-Dfile.encoding=UTF-8"),
    *("--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED", "--add-opens=java.base/java.nio=ALL-UNNAMED"),
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)


class InteropFailed(Exception):
    """RocketMQ, Java or Maven did not do what they were asked; the text says what."""


def fetch_jars(directory: Path) -> str:
    """The class path of RocketMQ's jars and of our reader, fetched and compiled below *directory* if they are not there."""
    jars, classes, log = directory / "jars", directory / "classes", directory / "fetch.log"
    sources = (HERE / "pom.xml", HERE / "RocketReader.java")
    stamp = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    if not (directory / "stamp").exists() or (directory / "stamp").read_text() != stamp:
        for folder in (jars, classes):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        goal = ("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars.absolute()}")
        _run(("mvn", "-q", "-B", "-f", str(sources[0]), *goal), log, "Maven could not fetch RocketMQ's jars")
        compiler = ("javac", "-nowarn", "-encoding", "UTF-8", "-cp", f"{jars}/*", "-d", str(classes), str(sources[1]))
        _run(compiler, log, "the reader could not be compiled")
        (directory / "stamp").write_text(stamp)
    return f"{classes.absolute()}:{jars.absolute()}/*"


class RocketMQ:
    """One name server and one broker. Use `running`; `ask` talks to the broker with RocketMQ's client."""

    def __init__(self, directory: Path, class_path: str, settings: Mapping[str, int]) -> None:
        self._directory, self._class_path = directory, class_path
        self._settings = settings
        self._port = _free_ports()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._reader: subprocess.Popen[str] | None = None

    @property
    def store(self) -> Path:
        """The copy that the broker works on."""
        return self._directory / "store"

    def start(self) -> None:
        """Start both and return when the broker serves; InteropFailed with what it said otherwise."""
        for name in ("store", "home/conf"):
            (self._directory / name).mkdir(parents=True, exist_ok=True)
        self._spawn("namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", {"listenPort": self._port})
        self._wait("namesrv", lambda: not port_is_free(HOST, self._port))
        self._spawn("broker", "org.apache.rocketmq.broker.BrokerStartup", self._broker_settings())
        self._wait("broker", lambda: "boot success" in (self._directory / "broker.out").read_text(errors="replace"))

    def ask(self, *words: str) -> list[dict[str, Any]]:
        """What the reader finds; InteropFailed with the client's reason."""
        if self._reader is None:
            command = (*JAVA, f"-Duser.home={self._directory}/home", "-cp", self._class_path)
            errors = (self._directory / "reader.out").open("wb")
            self._reader = subprocess.Popen(
                (*command, "RocketReader", f"{HOST}:{self._port}"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
                start_new_session=True,
            )
        assert self._reader.stdin is not None
        assert self._reader.stdout is not None
        self._reader.stdin.write("\t".join(words) + "\n")
        self._reader.stdin.flush()
        return _answer(self._reader.stdout, words)

    def stop(self) -> None:
        """An orderly end, as an operator's: the store is then as a broker leaves it."""
        self._end_reader()
        for name in ("broker", "namesrv"):
            self._end(name, signal.SIGTERM)

    def kill(self) -> None:
        """End everything at once."""
        self._end_reader()
        for name in ("broker", "namesrv"):
            self._end(name, signal.SIGKILL)

    def _broker_settings(self) -> dict[str, object]:
        return {
            "brokerName": "broker-a",
            "brokerId": 0,
            "namesrvAddr": f"{HOST}:{self._port}",
            "brokerIP1": HOST,
            "brokerIP2": HOST,
            "fastListenPort": self._port + PORTS[1],
            "listenPort": self._port + PORTS[2],
            "haListenPort": self._port + PORTS[3],
            "storePathRootDir": self.store.absolute(),
            "storePathCommitLog": self.store.absolute() / "commitlog",
            "autoCreateTopicEnable": "false",
            "timerWheelEnable": "false",
            "transactionCheckInterval": 86_400_000,
            "fileReservedTime": 876_000,
            "diskMaxUsedSpaceRatio": 95,
            "cleanFileForciblyEnable": "false",
            **self._settings,
        }

    def _spawn(self, name: str, main: str, settings: Mapping[str, object]) -> None:
        file = self._directory / f"{name}.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in {"bindAddress": HOST, **settings}.items()))
        with (self._directory / f"{name}.out").open("wb") as out:
            self._processes[name] = subprocess.Popen(
                (*JAVA, f"-Duser.home={self._directory}/home", "-cp", self._class_path, main, "-c", str(file)),
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "ROCKETMQ_HOME": str(self._directory / "home")},
                start_new_session=True,
            )

    def _wait(self, name: str, is_there: Any) -> None:
        deadline_s = time.monotonic() + START_WITHIN_S
        while not is_there():
            if self._processes[name].poll() is not None or time.monotonic() > deadline_s:
                raise InteropFailed(f"the {name} did not start:\n{self._last_words(name)}")
            time.sleep(0.05)

    def _last_words(self, name: str) -> str:
        logs = [self._directory / f"{name}.out", *sorted((self._directory / "home").rglob("store*.log"))]
        lines = [line for path in logs if path.is_file() for line in path.read_text(errors="replace").splitlines()[-8:]]
        return "\n".join(f"  {line[:200]}" for line in lines)

    def _end(self, name: str, with_signal: signal.Signals) -> None:
        process = self._processes.pop(name, None)
        if process is None:
            return
        process.send_signal(with_signal)
        try:
            process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _end_reader(self) -> None:
        if self._reader is not None:
            self._reader.kill()
            self._reader.communicate()
            self._reader = None


@contextmanager
def running(store: Path, directory: Path, class_path: str, settings: Mapping[str, int]) -> Iterator[RocketMQ]:
    """RocketMQ on a copy of *store*, below *directory*; nothing of it runs afterwards."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    # Sparse files stay sparse: RocketMQ's default sizes are 1 GiB and more.
    subprocess.run(("cp", "-r", "--sparse=always", str(store), str(directory / "store")), check=True)
    made = RocketMQ(directory.absolute(), class_path, settings)
    try:
        made.start()
        yield made
    finally:
        made.kill()


def _answer(lines: IO[str], words: tuple[str, ...]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    deadline_s = time.monotonic() + ANSWER_WITHIN_S
    while time.monotonic() < deadline_s:
        line = lines.readline()
        if not line:
            raise InteropFailed(f"the reader ended at {' '.join(words)}; see reader.out")
        document: dict[str, Any] = json.loads(line)
        if "error" in document:
            raise InteropFailed(f"{' '.join(words)}: {document['error']}")
        if "end" in document:
            return found
        found.append(document)
    raise InteropFailed(f"no answer to {' '.join(words)} within {ANSWER_WITHIN_S} s")


def _run(command: tuple[str, ...], log: Path, failure: str) -> None:
    with log.open("wb") as out:
        try:
            done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False, timeout=900)
        except FileNotFoundError as error:
            raise InteropFailed(
                f"{failure}: there is no {command[0]} on the PATH (Java 17 and Maven are needed)"
            ) from error
    if done.returncode:
        raise InteropFailed(f"{failure}; the end of {log}:\n" + "\n".join(log.read_text().splitlines()[-5:]))


def _free_ports() -> int:
    rng = random.Random()
    for _ in range(200):
        base = rng.randrange(20_000, 32_000, 10)  # below the ports that the kernel gives to clients
        if all(port_is_free(HOST, base + offset) for offset in PORTS):
            return base
    raise InteropFailed("no free ports on this machine")
