"""`load`: files into streams."""
