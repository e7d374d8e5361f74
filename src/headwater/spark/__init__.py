"""The data pipeline: streams as tables of Spark, in both directions."""
