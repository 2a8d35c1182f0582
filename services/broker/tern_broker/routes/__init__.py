"""The broker's HTTP door: health, metrics, status. Data never passes here; proxies use the link."""

from tern_broker.routes.status import status_routes

__all__ = ["status_routes"]
