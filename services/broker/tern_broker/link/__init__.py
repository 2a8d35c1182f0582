"""Requests of proxies, checkers and the command line: one door, one file of handlers a subject."""
