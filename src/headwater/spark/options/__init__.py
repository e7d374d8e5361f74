"""Options of the data source, parsed and checked."""
