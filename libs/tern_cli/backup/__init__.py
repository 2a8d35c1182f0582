"""`ternmq backup` and `ternmq restore`.

A broker group's log is copied to a directory, and a copy becomes the log of the group's members.
"""

from tern_cli.backup.backup_command import backup
from tern_cli.backup.restore_command import restore

__all__ = ["backup", "restore"]
