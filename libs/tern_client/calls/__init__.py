"""The calls of the SDK, as requests and as generators that a transport drives: one file for each
subject.
"""
