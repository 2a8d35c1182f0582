"""The common shell of every service: settings, logs, clock, problems, health, metrics, HTTP server.

Also an application without FastAPI. Imports are lazy: `from tern_service import load_settings` (or
`import tern_service.logs`) must not pay for FastAPI's import, because the command line and `--help`
import this package as well.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tern_service.bodies import read_body, read_strict
    from tern_service.clock import Clock, SystemClock
    from tern_service.connections.descriptors import need_descriptors
    from tern_service.health import add_health
    from tern_service.logs import setup_logs
    from tern_service.memory import release_free_memory
    from tern_service.metrics import add_metrics
    from tern_service.plain_app import PlainApp, health_routes, metrics_routes
    from tern_service.problem_handlers import install_problems
    from tern_service.problems import new_request_id, problem_reply, request_id_of
    from tern_service.server import open_socket, run_service, serve
    from tern_service.settings import SettingsError, load_settings, refuse, setting

_HOMES = {
    "Clock": "clock",
    "PlainApp": "plain_app",
    "SettingsError": "settings",
    "SystemClock": "clock",
    "add_health": "health",
    "add_metrics": "metrics",
    "health_routes": "plain_app",
    "install_problems": "problem_handlers",
    "load_settings": "settings",
    "metrics_routes": "plain_app",
    "new_request_id": "problems",
    "need_descriptors": "connections.descriptors",
    "open_socket": "server",
    "problem_reply": "problems",
    "read_body": "bodies",
    "read_strict": "bodies",
    "refuse": "settings",
    "release_free_memory": "memory",
    "request_id_of": "problems",
    "run_service": "server",
    "serve": "server",
    "setting": "settings",
    "setup_logs": "logs",
}

__all__ = [
    "Clock",
    "PlainApp",
    "SettingsError",
    "SystemClock",
    "add_health",
    "add_metrics",
    "health_routes",
    "install_problems",
    "load_settings",
    "metrics_routes",
    "need_descriptors",
    "new_request_id",
    "open_socket",
    "problem_reply",
    "read_body",
    "read_strict",
    "refuse",
    "release_free_memory",
    "request_id_of",
    "run_service",
    "serve",
    "setting",
    "setup_logs",
]


def __getattr__(name: str) -> Any:
    """Import the named member at its first use."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"tern_service has no '{name}'")
    return getattr(import_module(f"tern_service.{home}"), name)
