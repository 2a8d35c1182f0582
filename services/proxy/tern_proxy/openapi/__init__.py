"""The API document, OpenAPI 3.1: how it is put together (document.py, operations.py, schemas.py, security.py), and one file of data a subject."""
