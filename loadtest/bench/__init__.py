"""Benches of TernMQ on this machine, beside the best that the machine does.

`python -m loadtest.bench mesh`.
"""
