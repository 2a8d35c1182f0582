"""Documents of the HTTP API, one file for each subject: bodies of requests and answers. msgspec
decodes, encodes and describes them.
"""
