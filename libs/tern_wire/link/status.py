"""What a broker node says of itself: its STATUS when it is asked, and the notice LEADERSHIP to every proxy and checker that is linked to it.

Of a STATUS this has what code decides by. All else in it is for people, differs by release, and has no type: who shows it reads the map.
"""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.link.heads import LinkNotice, LinkReply, LinkRequest
from tern_wire.link.requests import NoticeCode, RequestCode

LEADER = "leader"


class NodeStatus(LinkReply, frozen=True, kw_only=True):
    """*role*: `leader` or `follower`, as of *term*. *serving*: a leader takes requests; a node that does not say is one that does."""

    role: str = ""
    serving: bool = True
    term: int = 0

    @property
    def is_serving(self) -> bool:
        """Whether this is a leader that takes requests."""
        return self.role == LEADER and self.serving


class GetStatus(LinkRequest[NodeStatus], frozen=True, kw_only=True):
    """Who are you? Every node answers, whether it leads or not."""

    code: ClassVar = RequestCode.STATUS
    reply: ClassVar = NodeStatus


class Leadership(LinkNotice, frozen=True):
    """Whether *node* leads and serves its broker group, as of *term*. Told when a link opens, and whenever that changes."""

    code: ClassVar = NoticeCode.LEADERSHIP

    node: str
    term: Annotated[int, msgspec.Meta(ge=0)]
    is_serving: bool = msgspec.field(name="serving")
