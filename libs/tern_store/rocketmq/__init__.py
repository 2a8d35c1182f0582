"""Apache RocketMQ's own files, read and written."""
