"""`ternmq backup` and `ternmq restore`: a broker group's log copied to a directory, and made the log of its members again."""

from tern_cli.backup.backup_command import backup
from tern_cli.backup.restore_command import restore

__all__ = ["backup", "restore"]
