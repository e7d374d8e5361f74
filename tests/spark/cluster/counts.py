"""A user's own job for `spark-submit`: counts the messages of each stream and writes the counts to streams."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.spark.writing import by_stream

if __name__ == "__main__":
    url, source, target = sys.argv[1:]
    spark = SparkSession.builder.appName("counts").getOrCreate()
    rows = spark.read.format("headwater").option("url", url).option("bucket", source).load()
    counts = rows.groupBy("stream").agg(F.count("*").alias("messages"), F.sum(F.octet_length("payload")).alias("bytes"))
    values = counts.select("stream", F.to_json(F.struct("messages", "bytes")).alias("value"))
    writer = by_stream(values).write.format("headwater").option("url", url).option("bucket", target)
    writer.option("contentType", "application/json").mode("append").save()
    spark.stop()
