"""The jobs: each has a configuration, a function `run(spark, config)` and a report."""
