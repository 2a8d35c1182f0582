"""The Spark session of these tests."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One session for all files of a worker: it takes ten seconds to start, and its Python workers stay. They import the package and this folder
    by PYTHONPATH. What a test registers or sets has a name of its own.
    """
    from tern_spark.session import open_session

    paths = [str(ROOT / "libs"), str(ROOT / "spark"), str(ROOT)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]))
        session = open_session("tests", conf_dir=ROOT / "spark" / "conf", memory_mb=512)
        yield session
        session.stop()
