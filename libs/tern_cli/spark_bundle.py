"""The packages that a Spark task needs, as one zip for `spark-submit --py-files`.

Executors have nothing of TernMQ installed then, only the libraries that its packages import. The
same sources give the same bytes.
"""

import zipfile
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("tern_wire", "tern_http", "tern_client", "tern_spark", "tern_jobs")
# What executors need beside it: the SDK's requirements, and those of the extra `spark`.
LIBRARIES = ("pyspark", "pyarrow", "numpy", "msgspec", "orjson", "httptools")
# The oldest time that a zip may tell.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def write_bundle(path: Path) -> int:
    """Write the zip; return the number of its files."""
    files: dict[str, Path] = {}
    for name in PACKAGES:
        folder = _folder(name)
        files |= {f"{name}/{found.relative_to(folder)}": found for found in folder.rglob("*.py")}
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, found in sorted(files.items()):
            bundle.writestr(zipfile.ZipInfo(name, _EPOCH), found.read_bytes(), zipfile.ZIP_DEFLATED)
    return len(files)


def _folder(package: str) -> Path:
    """Return where *package* is installed. Nothing of it is imported."""
    spec = find_spec(package)
    assert spec is not None and spec.origin is not None, package  # all come with this one
    return Path(spec.origin).parent
