"""Procedure of `ternmq store export`: read the node's directory, write a draft, rename it."""

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tern_cli.failures import CommandFailed
from tern_cli.store.rocketmq_export import ExportSummary, RocketExport
from tern_store.errors import StoreError
from tern_store.files import REAL_FILES
from tern_store.offline import START_AND_STOP, OfflineStore
from tern_store.rocketmq.store import RocketSettings

# Takes a total and a title; gives a context whose value is called with messages and bytes.
Bar = Callable[[int, str], AbstractContextManager[Callable[[int, int], None]]]
_TITLE = "Nothing was exported"


def export_to(directory: Path, data_dir: Path, settings: RocketSettings, bar: Bar) -> dict[str, Any]:
    """Write the store of the node in *data_dir* to *directory* and return the summary.
    CommandFailed when the node or the directory is unsuitable, or the node is damaged.
    """
    target = directory.absolute()
    _require_free(target)
    store = open_offline(data_dir, _TITLE)
    try:
        summary = _export(store, target, settings, bar)
    except StoreError as error:
        raise CommandFailed(_TITLE, str(error)) from error
    finally:
        store.close()
    document = asdict(summary)
    return {"directory": str(target), "bytes": document.pop("size_bytes"), **document}


def open_offline(data_dir: Path, title: str) -> OfflineStore:
    """Open the stopped node in *data_dir*.
    CommandFailed with *title* if there is no node, it runs, or it was not stopped cleanly.
    """
    nodes = sorted(path for path in (data_dir / "data").glob("*") if (path / "commitlog").is_dir())
    if nodes and not (data_dir / "commitlog").is_dir():
        raise CommandFailed(
            title, f"{data_dir} is a whole mesh: name one of its nodes, such as --data-dir {nodes[0]}.", exit_code=2
        )
    try:
        store = OfflineStore.open(data_dir)
    except StoreError as error:
        raise CommandFailed(title, str(error)) from error
    if not store.clean:
        store.close()
        raise CommandFailed(title, f"{data_dir}: the node was not stopped cleanly. {START_AND_STOP}")
    return store


def _export(store: OfflineStore, target: Path, settings: RocketSettings, bar: Bar) -> ExportSummary:
    export = RocketExport(store, settings)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target, so that the last step is a rename.
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        with bar(export.messages, "Exporting") as progress:
            summary = export.run(draft, progress)
        os.rename(draft, target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    # Durable here: the store under its name; its contents were synced as they were written.
    REAL_FILES.fsync_dir(target.parent)
    return summary


def _require_free(target: Path) -> None:
    try:
        taken = any(target.iterdir())
    except FileNotFoundError:
        return
    except NotADirectoryError as error:
        raise CommandFailed("The directory cannot be used", f"{target} is a file.", exit_code=2) from error
    if taken:
        raise CommandFailed(
            "The directory is not empty", f"{target} holds files: name a directory that does not exist.", exit_code=2
        )
