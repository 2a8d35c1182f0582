"""Where the table of a topic lies, as the library for Delta tables takes it: an address, and the
options of its store.
"""

import re
from urllib.parse import parse_qs, urlsplit

import msgspec

from tern_jobs.archive.folder import ArchiveFolder
from tern_jobs.frame.outcome import JobFailed

_S3 = "s3"
# The library takes such a part of a path for an escaped character, and looks elsewhere.
_ESCAPED = re.compile(r"%[0-9A-Fa-f]{2}")


class TablePlace(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a table, and the options of its store (credentials are in the environment)."""

    address: str
    options: dict[str, str]


def table_place(folder: ArchiveFolder, topic: str) -> TablePlace:
    """Return the place of *topic*'s table in the archive.

    JobFailed with exit code 2 when no table can be there.
    """
    path = f"{folder.root}/data/{topic}"
    if found := _ESCAPED.search(path):
        raise JobFailed(
            "Not a place for a table", f"{path}: '{found[0]}' in a path reads as an escaped character.", exit_code=2
        )
    if folder.is_local:
        return TablePlace(address=path, options={})
    parts = urlsplit(folder.uri)
    if parts.scheme != _S3:
        raise JobFailed(
            "Not a place for a table",
            f"{folder.uri}: tables are written to a folder or to {_S3}://. Archive there without --catalog.",
            exit_code=2,
        )
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    options = {"AWS_REGION": folder.region} if folder.region else {}
    if endpoint := query.get("endpoint_override"):
        url = endpoint if "://" in endpoint else f"{query.get('scheme', 'https')}://{endpoint}"
        options["AWS_ENDPOINT_URL"] = url
        options["AWS_ALLOW_HTTP"] = str(url.startswith("http://")).lower()
    return TablePlace(address=f"{_S3}://{path}", options=options)
