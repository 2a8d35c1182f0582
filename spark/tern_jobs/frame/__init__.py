"""What all jobs have: arguments, tasks on Spark, progress, tables, JSON, and the HTML page."""
