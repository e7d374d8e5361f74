"""The HTTP front: connections, the URL table, parsing, rendering and live reads."""
