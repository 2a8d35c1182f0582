"""The name server: live brokers, the leader of each broker group, the topics of each group.

Its state is soft: brokers' heartbeats bring it back after a restart. The package imports lazily, as
tern_service does: `--help` and refused settings do not wait for the web framework.
"""

from typing import TYPE_CHECKING, Any

from tern_namesrv.config import NamesrvSettings

if TYPE_CHECKING:
    from tern_namesrv.app import create_app

__all__ = ["NamesrvSettings", "create_app"]


def __getattr__(name: str) -> Any:
    """`create_app`, imported at its first use."""
    if name == "create_app":
        from tern_namesrv.app import create_app  # noqa: PLC0415

        return create_app
    raise AttributeError(f"tern_namesrv has no '{name}'")
