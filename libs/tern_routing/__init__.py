"""Broker groups seen by proxies and checkers: routes, links to nodes, leaders, requests to them."""

from tern_routing.group_link import Dial, Dialled, GivenUp, GroupLink, OnDown, OnNotice, OnUp
from tern_routing.leadership import LeaderBelief

__all__ = ["Dial", "Dialled", "GivenUp", "GroupLink", "LeaderBelief", "OnDown", "OnNotice", "OnUp"]
