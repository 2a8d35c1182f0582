"""A secure mesh for tests: `ternmq up --secure`, with clients for its proxies (root, principals with grants, nobody) and for its own HTTP."""

import random
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tern_security.authority import Pair
from tern_security.cluster_directory import ClusterDirectory
from tests.support.mesh.mesh import SEGMENT_SIZE_BYTES, Mesh, eventually, free_port_base, kept_up


class SecureMesh(Mesh):
    """As Mesh; `client`, and so every method of Mesh, is root's at proxies and the operator's elsewhere."""

    scheme = "https"

    def __init__(self, directory: Path, *, port_base: int, options: tuple[str, ...] = ()) -> None:
        super().__init__(directory, port_base=port_base, options=options)
        self.cluster = ClusterDirectory(directory)

    def up(self) -> None:
        """Start, and wait until it accepts what root may do."""
        super().up()
        self.client.close()
        self.client = httpx.Client(
            timeout=30, trust_env=False, verify=self.context("operator"), headers=bearer(self.root_key)
        )

    def run_plain(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """`ternmq ARGUMENTS`, without --data-dir."""
        command = [sys.executable, "-m", "tern_cli", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 0, f"{arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    @property
    def root_key(self) -> str:
        """The text of the root key."""
        return self.cluster.root_key.read_text().strip()

    @property
    def authority(self) -> Pair:
        """The cluster's own authority, for certificates that a test needs."""
        return Pair(cert=self.cluster.ca_cert.read_bytes(), key=self.cluster.ca_key.read_bytes())

    @property
    def checker_http(self) -> str:
        """The HTTP door of the first checker."""
        return f"https://127.0.0.1:{self.port_base + 70}"

    def context(self, client: str = "") -> ssl.SSLContext:
        """Trusts the cluster's authority, and has the certificate of *client* (operator, scraper), if one is named."""
        context = ssl.create_default_context(cafile=str(self.cluster.ca_cert))
        if client:
            pair = self.cluster.pair("client", client)
            context.load_cert_chain(pair.cert, pair.key)
        return context

    def with_key(self, key: str = "", *, proxy: int = 0) -> httpx.Client:
        """A client of a proxy with the bearer *key*, or with none. Close it."""
        return httpx.Client(
            base_url=f"https://127.0.0.1:{self.port_base + proxy}",
            timeout=30,
            trust_env=False,
            verify=self.context(),
            headers=bearer(key) if key else {},
        )

    def inside(self, client: str = "operator") -> httpx.Client:
        """A client of the mesh's own HTTP with the certificate of *client*; "" has none. Close it."""
        return httpx.Client(timeout=10, trust_env=False, verify=self.context(client))

    def new_key(self, principal: str, *grants: dict[str, Any], **settings: Any) -> str:
        """A new bearer key of *principal*, which has exactly *grants* from now on, once every proxy knows it."""
        path = f"/v1/principals/{principal}"
        assert self.settled("PUT", path, json={"grants": list(grants)}).status_code in {200, 201}
        answer = self.settled("POST", f"{path}/keys", json=settings)
        assert answer.status_code == 201, answer.text
        key = str(answer.json()["key"])
        for number, _ in enumerate(process for process in self.processes() if process["role"] == "proxy"):
            with self.with_key(key, proxy=number) as client:
                eventually(
                    lambda client=client: client.get("/v1/whoami").status_code == 200,  # type: ignore[misc]
                    within_s=30,
                    what=f"proxy-{number} knows the new key of {principal}",
                )
        return key


def bearer(key: str) -> dict[str, str]:
    """The header that shows *key*."""
    return {"Authorization": f"Bearer {key}"}


def grant(kind: str, pattern: str, *actions: str, effect: str = "allow") -> dict[str, Any]:
    """A grant as the body of PUT /v1/principals/{principal} has it."""
    return {"effect": effect, "kind": kind, "pattern": pattern, "actions": list(actions)}


@contextmanager
def running_secure_mesh(directory: Path, *options: str) -> Iterator[SecureMesh]:
    """A secure mesh for the length of a block; its logs are shown when the block fails."""
    mesh = SecureMesh(
        directory,
        port_base=free_port_base(random.Random()),
        options=("--secure", "--wait", "90", "--segment-size-bytes", str(SEGMENT_SIZE_BYTES), *options),
    )
    with kept_up(mesh):
        yield mesh
