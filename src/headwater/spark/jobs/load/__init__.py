"""`load`: files and tables into streams."""
