"""The options of the data source and the data sink, parsed and checked."""
