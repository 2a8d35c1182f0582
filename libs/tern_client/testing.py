"""`from tern_client.testing import TestMesh`: a mesh in memory for the tests of an application.

TestMesh is made of the servers' own code, which the SDK's distribution does not have: it is in
`ternmq`, package `tern_testing`. So nothing is imported here before a name is asked for, and then
by its name alone; types are in `testing.pyi` beside this file.
"""

from importlib import import_module
from typing import Any

from tern_wire.extras import need_package

_NAMES = ("DeadLetter", "MeshFailed", "SentMessage", "TestMesh")


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'tern_client.testing' has no attribute {name!r}")
    need_package("ternmq", "tern_client.testing", "tern_testing")
    return getattr(import_module("tern_testing"), name)
