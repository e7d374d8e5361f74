"""The data source: reads streams into DataFrames."""
