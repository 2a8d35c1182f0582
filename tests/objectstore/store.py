"""A real S3-compatible store (versitygw over a folder), as a process that may be killed and started again at the same address."""

import os
import socket
import subprocess
from pathlib import Path

from tests.support.mesh.mesh import eventually

ACCESS, SECRET, REGION, BUCKET = "archive", "not-a-secret-of-anyone", "us-east-1", "bucket"


class ObjectStore:
    """One process; its objects are files below *folder*, so that a test sees what is there without asking it."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._program, self._folder = program, folder
        self.objects = folder / "objects" / BUCKET
        self.objects.mkdir(parents=True)
        (folder / "meta").mkdir()
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port: int = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._port}"

    def uri(self, place: str) -> str:
        """The URI of an archive in the bucket, as jobs take it."""
        return f"s3://{BUCKET}/{place}?endpoint_override={self.url}"

    @property
    def environment(self) -> dict[str, str]:
        """Credentials for clients; nothing asks a cloud for others."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def start(self) -> None:
        """Start the process, and wait until it takes connections."""
        command: list[str | Path] = [self._program, "--quiet", "--region", REGION, "--port", f"127.0.0.1:{self._port}"]
        command += ["posix", "--sidecar", self._folder / "meta", self._folder / "objects"]
        root = {"ROOT_ACCESS_KEY": ACCESS, "ROOT_SECRET_KEY": SECRET}
        with (self._folder / "store.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **root})
        eventually(self._answers, within_s=30, what="the object store takes connections")

    def kill(self) -> None:
        """SIGKILL, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
        except OSError:
            return False
        return True
