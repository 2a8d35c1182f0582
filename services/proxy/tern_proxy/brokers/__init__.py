"""Access to the broker groups: routes, links, lanes of requests, and reads of old data from
followers.
"""
