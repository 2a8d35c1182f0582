"""The job `compact`: small files of an archive become few, by a manifest that replaces them."""

import uuid
from argparse import ArgumentParser, Namespace
from functools import partial

from tern_jobs.archive.compacting import CompactTask, compact_files, dead_files, plan_compaction
from tern_jobs.archive.folder import ArchiveFolder
from tern_jobs.archive.manifests import (
    VERSION,
    Manifest,
    current_ranges,
    drop_plans,
    publish_manifest,
    read_chain,
)
from tern_jobs.archive.planning import chain_or_fail
from tern_jobs.catalog.publishing import publish_tables, tables_shown
from tern_jobs.frame.outcome import Bars, JobFailed, Outcome, Table
from tern_jobs.frame.progress import Progress
from tern_jobs.frame.run import Clock, Job
from tern_jobs.frame.tasks import Tasks
from tern_wire.limits import MIB

_FILE_MIB = 128


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this job."""
    parser.add_argument("--archive", required=True, metavar="DEST", help="folder or URI that `archive` wrote to")
    parser.add_argument("--file-mib", type=int, default=_FILE_MIB, help=f"most MiB in a file; default {_FILE_MIB}")
    parser.add_argument(
        "--delete", action="store_true", help="remove replaced files, also of earlier runs; no reader may use them"
    )


def run(options: Namespace, tasks: Tasks, progress: Progress, clock: Clock) -> Outcome:
    """Join files in tasks, publish the manifest, and only then remove what it replaced."""
    if options.file_mib < 1:
        raise JobFailed("An argument is wrong", "--file-mib is 1 at least.", exit_code=2)
    folder = ArchiveFolder(options.archive)
    chain = chain_or_fail(read_chain(folder))
    if not chain.manifests:
        raise JobFailed("There is no archive", f"{options.archive} has no manifests.")
    manifests = list(chain.manifests)
    before = current_ranges(manifests)
    progress.step("plans")
    runs = plan_compaction(before, size_max_bytes=options.file_mib * MIB)
    attempt, head = uuid.uuid4().hex, chain.head
    joined = tasks.map(
        "joins",
        partial(compact_files, uri=options.archive),
        [CompactTask(parts=parts, attempt=attempt) for parts in runs],
    )
    if joined:
        manifest = Manifest(
            version=VERSION,
            number=len(manifests) + 1,
            previous=chain.head,
            made_ms=clock.now_ms(),
            ranges=joined,
            replaced=[part.file for parts in runs for part in parts],
        )
        head = publish_manifest(folder, manifest, attempt)
        drop_plans(folder, manifest.number)
        manifests.append(manifest)
    after = current_ranges(manifests)
    progress.step("brings tables up to date")
    tables = publish_tables(folder, manifests)
    # A table that could not be written names the replaced files still.
    removed = _remove(folder, dead_files(manifests, after)) if options.delete and not tables.faults else 0
    files_before = sum(1 for found in before if found.file)
    files_after = sum(1 for found in after if found.file)
    headline = f"{files_before:,} files became {files_after:,}." if joined else "No files are to be joined."
    rows = [
        (found.topic, found.queue, found.file.split("/")[2], len(parts), found.rows, found.file_bytes)
        for parts, found in zip(runs, joined, strict=True)
    ]
    return Outcome(
        headline=headline + (f" {removed:,} replaced files are removed." if removed else ""),
        facts={
            "files before": files_before,
            "files after": files_after,
            "removed": removed,
            "head": head,
            "tables": len(tables.right),
        },
        tables=[
            Table(title="Joined", columns=("topic", "queue", "day", "parts", "rows", "file_bytes"), rows=rows),
            tables_shown(tables),
        ],
        plots=[Bars(title="Files", labels=["before", "after"], values=[files_before, files_after], unit="files")],
        faults=tables.faults,
    )


def _remove(folder: ArchiveFolder, paths: list[str]) -> int:
    """Remove files; those that an earlier run has removed are no failure."""
    there = {
        f"{place}/{name}"
        for place in sorted({path.rpartition("/")[0] for path in paths})
        for name in folder.names(place)
    }
    found = [path for path in paths if path in there]
    for path in found:
        folder.delete(path)
    return len(found)


JOB = Job(
    name="compact",
    summary="Join the small files of an archive; a new manifest replaces them.",
    description="""Files of one queue and day are joined; rows and offsets stay. The replaced files are left for
readers that have begun, until a run with --delete. One job at a time writes to an archive.

  ternmq spark run compact --archive archive
  ternmq spark run compact --archive archive --file-mib 512 --delete""",
    arguments=arguments,
    run=run,
)
