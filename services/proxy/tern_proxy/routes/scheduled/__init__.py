"""Scheduled messages over HTTP: listed, recalled."""
