"""Requests of proxies, checkers and the command line: one dispatcher, and one file of handlers for
each subject.
"""
