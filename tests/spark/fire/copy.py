"""The driver of a copy, from a bucket into another: `python -m tests.spark.fire_copy --help`."""

import argparse

from headwater.spark.session import session
from headwater.spark.writing import by_stream

from ..cluster.standalone import DRIVER_CONF

LOOK_SECONDS = 1


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("url", "master", "checkpoint", "source", "target"):
        parser.add_argument(name)
    parser.add_argument("--via", default="lake")
    parser.add_argument("--to-the-end", action="store_true", help="copy what there is, then end")
    asked = parser.parse_args()
    spark = session("fire", master=asked.master, conf=DRIVER_CONF)
    rows = (
        spark.readStream.format("headwater")
        .option("url", asked.url)
        .option("bucket", asked.source)
        .option("via", asked.via)
        .option("startingOffsets", "earliest")
        .option("flushInterval", "1s")
        .option("maxBytesPerTrigger", "1m")
        .load()
    )
    messages = rows.selectExpr("stream", "payload AS value", "content_type", "position", "offset")
    writer = (
        by_stream(messages)
        .writeStream.format("headwater")
        .queryName(f"copy-{asked.via}")
        .option("url", asked.url)
        .option("bucket", asked.target)
        .option("orderColumn", "position,offset")
        .option("maxAppendMessages", "50")
        .option("checkpointLocation", asked.checkpoint)
    )
    query = (
        writer.trigger(availableNow=True) if asked.to_the_end else writer.trigger(processingTime="1 second")
    ).start()
    said = ""
    while not query.awaitTermination(LOOK_SECONDS):
        progress = query.lastProgress
        words = said if progress is None else f"batch {progress['batchId']}: {progress['numInputRows']} rows"
        if words != said:
            print(words, flush=True)
            said = words
    spark.stop()


if __name__ == "__main__":
    main()
