"""What the commands show: tables and lines, made from what services answer."""
