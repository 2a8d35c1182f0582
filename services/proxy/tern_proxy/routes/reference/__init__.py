"""Reference of the API: the document, a page to read and try it, and a page for each error."""
