"""The API document, OpenAPI 3.1, built from the rows of all routes."""
