"""Readers and writers of Apache RocketMQ's own files."""
