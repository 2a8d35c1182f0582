"""Frames between proxy, checker and broker: requests, rows and commands."""
