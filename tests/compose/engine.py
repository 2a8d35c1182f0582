"""A Docker engine with Compose, and one deployment of ours on it: commands, states of containers, harm.

If an engine answers it is used as it is. If none does, tests/compose/lab-docker.sh brings one up in a scratch folder; then images are built by its
build mode, and whatever talks to published ports runs in its network (`inside`).
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "deploy" / "docker-compose.yml"
LAB = ROOT / "tests" / "compose" / "lab-docker.sh"
# Its own names, so that a deployment that somebody uses is not touched.
PROJECT = "ternmq-test"
PORTS = (18443, 18444)
BUILT = {"": ("init",), "demo": ("spark-master",), "load": ("load",)}
_BUILD_WITHIN_S = 1_800.0


class EngineFailed(RuntimeError):
    """A command of the engine failed; the text is what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One container as `docker inspect` has it."""

    id: str
    service: str
    pid: int
    is_running: bool
    health: str
    restarts: int
    document: dict[str, Any]


def engine_answers() -> bool:
    """Whether `docker` and its Compose plugin work here as they are."""
    if shutil.which("docker") is None:
        return False
    asked = (["docker", "info"], ["docker", "compose", "version"])
    return all(subprocess.run(command, capture_output=True, check=False).returncode == 0 for command in asked)


class Engine:
    """Where commands run: as they are, or through the lab. Owner of nothing; *lab* is the scratch folder, None for an engine that answers."""

    def __init__(self, lab: Path | None) -> None:
        self.lab = lab
        self.environment = dict(os.environ) | {f"TERNMQ_PORT_{number}": str(port) for number, port in enumerate(PORTS)}
        if lab is not None:
            told = self._lab("env").stdout
            for line in told.replace("export ", "").split():
                name, _, value = line.partition("=")
                self.environment[name] = value.strip("'\"")

    @staticmethod
    def set_up(lab: Path) -> "Engine":
        """The engine of *lab*, made if need be: about four minutes from nothing, and nothing when it is there."""
        subprocess.run([str(LAB), "-d", str(lab), "setup"], check=True)
        return Engine(lab)

    def _lab(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(LAB), "-d", str(self.lab), *arguments], check=True, stdout=subprocess.PIPE, text=True
        )

    def inside(self, *command: str) -> list[str]:
        """*command*, so that published ports answer on 127.0.0.1."""
        return list(command) if self.lab is None else [str(LAB), "-d", str(self.lab), "run", *command]

    def purge(self) -> None:
        """Take the lab away again; an engine that was there before stays."""
        if self.lab is not None:
            self._lab("purge")

    def build(self, profiles: Sequence[str]) -> None:
        """The images of the mesh and of *profiles*."""
        services = [service for profile in ("", *profiles) for service in BUILT[profile]]
        chosen = {"COMPOSE_PROFILES": ",".join(profiles), "COMPOSE_PARALLEL_LIMIT": "1"}
        command = ["docker", "compose", "-f", str(FILE), "build", *services]
        if self.lab is not None:
            command = [str(LAB), "-d", str(self.lab), "compose-build", "-f", str(FILE), *services]
        subprocess.run(command, check=True, env=self.environment | chosen, timeout=_BUILD_WITHIN_S)

    # Commands --------------------------------------------------------------------------------------------------
    def docker(self, *arguments: str, within_s: float = 120.0, check: bool = True) -> str:
        """What `docker ...` prints; EngineFailed with what it said."""
        ended = subprocess.run(
            ["docker", *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=self.environment,
            timeout=within_s,
            text=True,
            check=False,
        )
        if check and ended.returncode:
            said = f"{ended.stderr.strip()[-2_000:]}\n{ended.stdout.strip()[-2_000:]}"
            raise EngineFailed(f"docker {' '.join(arguments[:6])} ended with {ended.returncode}: {said}")
        return ended.stdout

    def compose(self, *arguments: str, within_s: float = 300.0, check: bool = True) -> str:
        """What `docker compose ...` of the test's deployment prints."""
        return self.docker("compose", "-p", PROJECT, "-f", str(FILE), *arguments, within_s=within_s, check=check)

    def containers(self) -> dict[str, Container]:
        """The containers of the deployment by service, ended ones too."""
        label = f"label=com.docker.compose.project={PROJECT}"
        ids = self.docker("ps", "-aq", "--no-trunc", "--filter", label).split()
        documents = json.loads(self.docker("inspect", *ids)) if ids else []
        found = (_container(document) for document in documents)
        return {each.service: each for each in found}

    def kill_main_process(self, container: Container) -> None:
        """SIGKILL from outside, as the kernel does it to a process that takes too much memory: `docker kill` would count as a wish.

        Through a container in the machine's process namespace, so that nobody has to be root here.
        """
        if container.pid <= 1:
            raise EngineFailed(f"{container.service} has no process to kill")
        image = container.document["Config"]["Image"]
        options = (
            "--rm",
            "--pid",
            "host",
            "--network",
            "none",
            "--user",
            "0",
            "--cap-drop",
            "ALL",
            "--cap-add",
            "KILL",
        )
        self.docker("run", *options, image, "bash", "-c", f"kill -9 {container.pid}")

    def network(self, name: str) -> str:
        """The engine's name of a network of the deployment."""
        return f"{PROJECT}_{name}"


def _container(document: dict[str, Any]) -> Container:
    state = document["State"]
    return Container(
        id=document["Id"],
        service=document["Config"]["Labels"]["com.docker.compose.service"],
        pid=int(state["Pid"]),
        is_running=bool(state["Running"]),
        health=str(state.get("Health", {}).get("Status", "")),
        restarts=int(document["RestartCount"]),
        document=document,
    )


def eventually(check: Callable[[], Any], *, within_s: float, what: str) -> Any:
    """The first true answer of *check*; AssertionError naming *what* after *within_s*."""
    deadline_s = time.monotonic() + within_s
    while True:
        answer = check()
        if answer:
            return answer
        assert time.monotonic() < deadline_s, f"not within {within_s:g} s: {what}"
        time.sleep(0.25)
