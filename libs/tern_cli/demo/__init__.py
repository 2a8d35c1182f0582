"""`ternmq demo`: a real data set through the whole mesh, checked at the end."""

from tern_cli.demo.commands import demo_app

__all__ = ["demo_app"]
