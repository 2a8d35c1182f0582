"""The name server's HTTP routes, one router per reader: brokers write, proxies and people read."""

from tern_namesrv.routes.brokers import broker_routes
from tern_namesrv.routes.lookups import lookup_routes

__all__ = ["broker_routes", "lookup_routes"]
