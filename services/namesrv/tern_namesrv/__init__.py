"""The name server: which brokers live, which node leads each broker group, which topics each group hosts. Soft state.

The door is lazy, as tern_service's: `--help` and refused settings do not wait for the web framework.
"""

from typing import TYPE_CHECKING, Any

from tern_namesrv.config import NamesrvSettings

if TYPE_CHECKING:
    from tern_namesrv.app import create_app

__all__ = ["NamesrvSettings", "create_app"]


def __getattr__(name: str) -> Any:
    """`create_app`, imported when it is first asked for."""
    if name == "create_app":
        from tern_namesrv.app import create_app  # noqa: PLC0415

        return create_app
    raise AttributeError(f"tern_namesrv has no '{name}'")
