"""The way of a plain send through the proxy: the files that take part are those of ARCHITECTURE.md, in that order."""

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import tern_proxy
from tests.support.proxy.proxy_mesh import ProxyMesh, proxy_mesh

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = Path(tern_proxy.__file__).parent
FILES_MAX = 10
pytestmark = pytest.mark.anyio


def listed() -> list[str]:
    """The files that ARCHITECTURE.md names, below the package."""
    section = (ROOT / "ARCHITECTURE.md").read_text("utf-8").partition("## A plain send through the proxy\n")[2]
    return re.findall(r"^\d+\. `([\w/]+\.py)`", section.partition("\n## ")[0], re.MULTILINE)


async def files_of_a_send(mesh: ProxyMesh) -> list[str]:
    """Files of the proxy whose code runs during one send, in the order in which each first runs."""
    exchange = mesh.raw("POST", "/v1/topics/orders/messages")
    found: dict[str, None] = {}

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            found[str(path.relative_to(PACKAGE))] = None

    sys.setprofile(note)
    try:
        exchange.push(b"hello")
        await exchange.task
    finally:
        sys.setprofile(None)
    assert exchange.status == 201
    return list(found)


async def test_a_plain_send_passes_the_files_that_the_architecture_names() -> None:
    """A further file on the way, or one that is not on it any more, changes ARCHITECTURE.md, too."""
    async with proxy_mesh() as mesh:
        await mesh.send(count=2)  # what happens once, at a first send, is not the way
        found = await files_of_a_send(mesh)
    assert found == listed()
    assert len(found) <= FILES_MAX
