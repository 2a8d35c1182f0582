"""The Worker: handlers of many topics and consumer groups in one process, with leases, flow control
and an orderly stop.
"""
