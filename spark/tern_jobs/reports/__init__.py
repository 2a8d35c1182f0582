"""What the reports of jobs compute, from offsets, headers and the answers of the admin API."""
