"""Bodies of messages as Python values: what a producer makes of a value, what a consumer gets back,
and the error of a body that does not fit.
"""
