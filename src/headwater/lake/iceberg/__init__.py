"""Apache Iceberg metadata of the lake, format version 2: written incrementally by the server, read by any engine."""
