"""`python -m tests.cluster`: the jobs on a standalone Spark cluster over a secure mesh, while machines of both die. `make spark-cluster`.

    producers -> orders -> archive -> verify -> replay -> orders-again -> archive -> verify that both are the same

Three brokers, two proxies; a master and two workers, whose Python has nothing of TernMQ: `--py-files` brings it. While
the archive is made and producers write, the leading broker is killed; a second run archives what came meanwhile. While
the replay runs, a worker and a proxy are killed. Exit code 1 when a count or a checksum differs, or a kill came too late to count.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tern_cli.spark_bundle import write_bundle
from tests.cluster.producers import Producers
from tests.cluster.spark_cluster import ROOT, SparkCluster, running_cluster
from tests.support.mesh.mesh import eventually
from tests.support.mesh.secure_mesh import SecureMesh, grant, running_secure_mesh

ROWS = 1_000_000
# Of the messages, so many per cent are there before the archive begins; the others come while it is made.
_BEFORE_PERCENT = 60
_FILES, _BATCHES = 40, 10
_JOB_MAX_S = 900
SOURCE, AGAIN = "orders", "orders-again"


class Wrong(Exception):
    """What was to be proved is not so."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The jobs, with the mesh and the cluster that they run on."""

    mesh: SecureMesh
    cluster: SparkCluster
    folder: Path
    bundle: Path
    key_file: Path
    began_s: float

    def say(self, text: str) -> None:
        """Progress."""
        print(f"{time.monotonic() - self.began_s:6.1f} s  {text}", file=sys.stderr, flush=True)

    @property
    def endpoints(self) -> list[str]:
        """Both proxies."""
        return [f"https://127.0.0.1:{self.mesh.port_base + number}" for number in (0, 1)]

    @property
    def ca_file(self) -> str:
        """The authority of the mesh."""
        return str(self.mesh.cluster.ca_cert)

    def run(
        self, name: str, *arguments: str, meanwhile: Callable[["subprocess.Popen[str]"], None] | None = None
    ) -> Any:
        """The result of a job, which has to end well; *meanwhile* is called when it has begun."""
        common = ["--endpoint", ",".join(self.endpoints), "--key-file", str(self.key_file), "--ca-file", self.ca_file]
        began_s = time.monotonic()
        job = self.cluster.submit(
            ROOT / "spark" / "jobs" / f"{name}.py", *arguments, *common, "-o", "json", bundle=self.bundle
        )
        try:
            if meanwhile is not None:
                meanwhile(job)
            out, _ = job.communicate(timeout=_JOB_MAX_S)
        finally:
            job.kill()
        if job.returncode != 0:
            log = (self.cluster.folder / f"{name}.log").read_text("utf-8", errors="replace")
            raise Wrong(f"{name} ended with {job.returncode}\n{out[-2_000:]}\n{log[-4_000:]}")
        result = json.loads(out[out.index("{") :])
        self.say(f"{name}: {result['headline']} ({time.monotonic() - began_s:.1f} s)")
        return result["facts"]

    def at(self, reached: Callable[[], object], what: str, act: Callable[[], object]) -> Callable[..., None]:
        """What to do while a job runs: *act* once *reached*; Wrong when the job was over before."""

        def meanwhile(job: "subprocess.Popen[str]") -> None:
            eventually(lambda: reached() or job.poll() is not None, within_s=_JOB_MAX_S, what=what)
            if job.poll() is not None:
                out, _ = job.communicate()
                logs = (path.read_text("utf-8", errors="replace") for path in self.cluster.folder.glob("*.log"))
                raise Wrong(f"the job was over before: {what}\n{out}\n" + "\n".join(log[-4_000:] for log in logs))
            act()
            self.say(what)

        return meanwhile

    def published(self) -> int:
        """Batches of the replay that are visible."""
        found = self.mesh.settled("GET", "/v1/publications").json()["publications"]
        return max((row.get("batch", -1) + 1 for row in found), default=0)


def prove(pipeline: Pipeline, rows: int) -> dict[str, Any]:
    """Run everything; the figures. Wrong."""
    mesh, folder = pipeline.mesh, pipeline.folder
    archive, copy = str(folder / "archive"), str(folder / "copy")
    for topic in (SOURCE, AGAIN):
        mesh.create(topic, queues=4)
    files: dict[str, Any] = {"key_file": str(pipeline.key_file), "ca_file": pipeline.ca_file}
    before = rows * _BEFORE_PERCENT // 100
    with Producers(pipeline.endpoints, SOURCE, 0, before, **files) as loading:
        acked = loading.ended()
    pipeline.say(f"{acked:,} messages are there")

    rows_per_file = str(max(1, rows // _FILES))
    producers = Producers(pipeline.endpoints, SOURCE, before, rows, **files)

    def write_and_kill(job: "subprocess.Popen[str]") -> None:
        has_begun = lambda: any((folder / "archive" / "data").rglob("*.parquet*"))  # noqa: E731 - said once
        pipeline.at(has_begun, "the producers go on", producers.start)(job)
        pipeline.at(
            lambda: producers.acked,
            "killed, with producers at work: the leading broker",
            lambda: mesh.kill(mesh.leader()),
        )(job)

    first = pipeline.run(
        *("archive", "--topics", SOURCE, "--to", archive, "--rows-per-file", rows_per_file), meanwhile=write_and_kill
    )
    acked += producers.ended()
    pipeline.say(f"{acked:,} messages are acked")
    second = pipeline.run("archive", "--topics", SOURCE, "--to", archive, "--rows-per-file", rows_per_file)
    proof = pipeline.run("verify", "--archive", archive)
    expect("rows of both archive runs", first["rows"] + second["rows"], acked)
    expect("rows that the brokers have alike", proof["compared rows"], acked)

    def kill_both(job: "subprocess.Popen[str]") -> None:
        worker, proxy = partial(pipeline.cluster.kill_worker, "worker-1"), partial(mesh.kill, "proxy-0")
        pipeline.at(lambda: pipeline.published() >= 2, "killed: a worker of Spark", worker)(job)
        pipeline.at(lambda: pipeline.published() >= 4, "killed: a proxy", proxy)(job)

    replayed = pipeline.run(
        *("replay", "--archive", archive, "--to", AGAIN, "--batch-rows", str(max(1, rows // _BATCHES))),
        meanwhile=kill_both,
    )
    pipeline.cluster.start_worker("worker-3")
    expect("replayed rows", replayed["rows"], acked)
    copied = pipeline.run("archive", "--topics", AGAIN, "--to", copy, "--rows-per-file", rows_per_file)
    proof_of_copy = pipeline.run("verify", "--archive", copy, "--copy", archive)
    expect("rows of the copy", copied["rows"], acked)
    expect("rows of the copy that the brokers have alike", proof_of_copy["compared rows"], acked)
    return {"rows": acked, "in the first archive": first["rows"], "head": proof["head"]}


def expect(what: str, found: int, wanted: int) -> None:
    """Raise Wrong unless both are equal."""
    if found != wanted:
        raise Wrong(f"{what}: {found:,}, not {wanted:,}")


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help=f"messages; default {ROWS:,}")
    options = parser.parse_args()
    if shutil.which("java") is None:
        print("No java on the PATH: install Java 17, for example openjdk-17-jre-headless.", file=sys.stderr)
        return 2
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tern-cluster-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        bundle = folder / "ternmq-spark.zip"
        write_bundle(bundle)
        try:
            with (
                running_secure_mesh(folder / "mesh", "--proxies", "2") as mesh,
                running_cluster(folder / "spark", workers=2) as cluster,
            ):
                key_file = folder / "pipeline.key"
                key_file.touch(mode=0o600)
                key_file.write_text(mesh.new_key("pipeline", grant("topic", f"{SOURCE}*", "PUB", "SUB", "DESCRIBE")))
                pipeline = Pipeline(mesh, cluster, folder, bundle, key_file, began_s)
                pipeline.say("a secure mesh and a cluster of two workers are up")
                figures = prove(pipeline, options.rows)
        except Wrong as wrong:
            print(f"wrong: {wrong}", file=sys.stderr)
            return 1
    print(json.dumps(figures | {"seconds": round(time.monotonic() - began_s, 1)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
