"""The way of a plain send through the proxy: the files that take part are those of ARCHITECTURE.md, in that order."""

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import tern_proxy
import tern_remoting
from tests.support.proxy.proxy_mesh import ProxyMesh, proxy_mesh

ROOT = Path(__file__).resolve().parents[3]
PACKAGE, LINK = Path(tern_proxy.__file__).parent, Path(tern_remoting.__file__).parent / "link.py"
# Files whose code runs: what a reader has to follow. It may only fall.
FILES_MAX = 10
# Runs when any frame has been answered, to let readers go on; no message passes it.
BESIDE = {"waiting/read_budget.py"}
pytestmark = pytest.mark.anyio


def section() -> tuple[str, str]:
    """The way as ARCHITECTURE.md tells it, a numbered list, and what it says behind it of files beside the way."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8").partition("## A plain send through the proxy\n")[2]
    way, _, beside = text[text.index("\n1. ") : text.index("\n## ")].partition("\n\n")
    return way, beside


def files_in(text: str) -> set[str]:
    """The proxy's files that *text* names."""
    return {name for name in re.findall(r"`([\w/]+\.py)`", text) if not name.startswith("tern_")}


class Trace:
    """What runs between `begin` and `end`: *files* of the proxy, and its *chain*: those that were on the stack when the
    message went into its lane, and then when its frame went to the link."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.chain: dict[str, None] = {}

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        """One call or return, as `sys.setprofile` tells it."""
        if event != "call":
            return
        path, name = Path(frame.f_code.co_filename), frame.f_code.co_name
        if path.is_relative_to(PACKAGE):
            self.files[str(path.relative_to(PACKAGE))] = None
        if (path, name) in {(PACKAGE / "brokers" / "lanes.py", "submit"), (LINK, "begin")}:
            self.chain |= dict.fromkeys(reversed(list(_stack(frame))))


def _stack(frame: FrameType | None) -> list[str]:
    """Files of the proxy from the innermost call outwards."""
    found = []
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            found.append(str(path.relative_to(PACKAGE)))
        frame = frame.f_back
    return found


async def trace_of_a_send(mesh: ProxyMesh) -> Trace:
    """One send as it comes from a client, whole, whose topic and leader are known."""
    await mesh.send(count=2)  # what happens once, at a first send, is not the way
    taken, trace = mesh.transport.taken, Trace()
    sys.setprofile(trace)
    try:
        answer = await mesh.http.post("/v1/topics/orders/messages", content=b"hello")
    finally:
        sys.setprofile(None)
    assert (answer.status_code, mesh.transport.taken) == (201, taken + 1)
    return trace


async def test_a_plain_send_passes_the_files_that_the_architecture_names() -> None:
    """A further file on the way, or one that is not on it any more, changes ARCHITECTURE.md, too."""
    async with proxy_mesh() as mesh:
        trace = await trace_of_a_send(mesh)
    way, beside = section()
    assert list(trace.chain) == re.findall(r"^\d+\. `([\w/]+\.py)`", way, re.MULTILINE)
    assert trace.files.keys() - BESIDE == files_in(way)
    assert len(files_in(way)) <= FILES_MAX
    assert all((PACKAGE / name).is_file() for name in files_in(beside))
    assert not trace.files.keys() & files_in(beside)
