"""A copy of another node's log: its manifest, the source that reads, the sink that writes, the
swap.
"""
