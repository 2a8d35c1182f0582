"""Status of a broker node: the answer to STATUS, and the notice LEADERSHIP to every linked proxy
and checker.

The type has only the fields of a STATUS on which code depends. All others are for display, differ
by release, and have no type: viewers read the map.
"""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.link.heads import LinkNotice, LinkReply, LinkRequest
from tern_wire.link.requests import NoticeCode, RequestCode

LEADER = "leader"


class NodeStatus(LinkReply, frozen=True, kw_only=True):
    """*role*: `leader` or `follower`, as of *term*.

    *serving*: a leader accepts requests; true if absent.
    """

    role: str = ""
    serving: bool = True
    term: int = 0

    @property
    def is_serving(self) -> bool:
        """Return whether this is a leader that accepts requests."""
        return self.role == LEADER and self.serving


class GetStatus(LinkRequest[NodeStatus], frozen=True, kw_only=True):
    """Request the status of a node. Every node answers, leader or not."""

    code: ClassVar = RequestCode.STATUS
    reply: ClassVar = NodeStatus


class Leadership(LinkNotice, frozen=True):
    """Whether *node* leads and serves its broker group, as of *term*.

    Sent when a link opens and at every change.
    """

    code: ClassVar = NoticeCode.LEADERSHIP

    node: str
    term: Annotated[int, msgspec.Meta(ge=0)]
    is_serving: bool = msgspec.field(name="serving")
