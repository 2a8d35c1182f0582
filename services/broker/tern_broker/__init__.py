"""A broker: one node of a broker group. Its core loop owns log, state and consensus; its HTTP loop
serves health and metrics.
"""
