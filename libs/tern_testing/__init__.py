"""TestMesh: a mesh in the process of a test, in memory, with virtual time and the product's own
core.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tern_testing.mesh import MeshFailed, TestMesh
    from tern_testing.records import DeadLetter, SentMessage

__all__ = ["DeadLetter", "MeshFailed", "SentMessage", "TestMesh"]

# Imported at their first use: the plugin of pytest must not load a server.
_HOMES = {
    "DeadLetter": "tern_testing.records",
    "MeshFailed": "tern_testing.mesh",
    "SentMessage": "tern_testing.records",
    "TestMesh": "tern_testing.mesh",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tern_testing' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found
