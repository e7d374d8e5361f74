"""The data source: reads streams into DataFrames, from the lake or from the server."""
