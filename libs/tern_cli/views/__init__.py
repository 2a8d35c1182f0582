"""Tables and lines that commands show, made from the answers of services."""
