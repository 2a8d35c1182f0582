"""Errors of a node that is rebuilt from its peers. Imported from errors.py, which has the table."""

from tern_wire.tern_error import TernError


class RebuildFileUnknown(TernError):
    code, status, title = "rebuild-file-unknown", 404, "No such file, or no such place in it"
    fix = "{reason}. Ask for what the manifest names, as it names it."


class RebuildNotHere(TernError):
    code, status, title = "rebuild-not-here", 409, "Nodes are rebuilt from the leader"
    fix = "Node '{node}' is not the leader; leader: '{leader}'. Send the request there."


class RebuildFileGone(TernError):
    code, status, title = "rebuild-file-gone", 410, "Retention has dropped this file"
    fix = "'{name}' is no longer part of the log. Request a new manifest and continue with that."


class RebuildNotNow(TernError):
    code, status, retryable, title = "rebuild-not-now", 503, True, "The log cannot be offered now"
    fix = "{reason}. Repeat shortly."


class PeerProofRefused(TernError):
    code, status, title = "peer-proof-refused", 401, "Only nodes of the cluster may ask here"
    fix = "{reason}. Give all nodes the same cluster key and group id, and clocks that agree to a minute."
