"""The jobs: each a configuration, a function `run(spark, config)` and what it reports."""
