"""The API document, OpenAPI 3.1: how it is put together from the rows of all routes."""
