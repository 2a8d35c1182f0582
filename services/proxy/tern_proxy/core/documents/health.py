"""Documents for supervisors and load balancers: liveness and readiness."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from tern_proxy.core.documents.values import words

_ROOM = (
    "State of each room that requests share: `short` refuses large ones, `full` also small ones, and makes this 503."
)


class Health(Struct, kw_only=True):
    """Liveness. All fields except `status` only with `?verbose`."""

    status: Annotated[str, words("alive")]
    service: str | UnsetType = UNSET
    proxy: str | UnsetType = UNSET
    notice: str | UnsetType = UNSET


class Readiness(Struct, kw_only=True):
    """Whether the proxy accepts work, and the reasons if not."""

    ready: bool
    routes: bool
    name_server: bool
    leaders: Annotated[dict[str, str], Meta(description="Leader by broker group; empty while there is none.")]
    stopping: bool
    room: Annotated[dict[str, Annotated[str, words("free", "short", "full")]], Meta(description=_ROOM)]
