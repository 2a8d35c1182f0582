"""The `ternmq` command: the mesh on one machine (`up`, `down`, `status`) and a client for people.

This file imports nothing: the supervisor lives in this package and must stay small.
"""

__all__: list[str] = []
