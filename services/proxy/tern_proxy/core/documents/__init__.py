"""The documents of the HTTP API, one file a subject: what requests bring and what answers hold. msgspec reads, writes and describes them."""
