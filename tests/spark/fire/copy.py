"""The driver of a pipeline that copies a bucket to another: `python -m tests.spark.fire.copy --help`."""

import argparse

from headwater.spark.session import session
from headwater.spark.writing import by_stream

from ..cluster.standalone import DRIVER_CONF

REPORT_SECONDS = 1


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("url", "master", "checkpoint", "source", "target"):
        parser.add_argument(name)
    parser.add_argument("--via", default="lake")
    parser.add_argument("--to-the-end", action="store_true", help="copy what exists now, then end")
    arguments = parser.parse_args()
    spark = session("fire", master=arguments.master, conf=DRIVER_CONF)
    rows = (
        spark.readStream.format("headwater")
        .option("url", arguments.url)
        .option("bucket", arguments.source)
        .option("via", arguments.via)
        .option("startingOffsets", "earliest")
        .option("flushInterval", "1s")
        .option("maxBytesPerTrigger", "1m")
        .load()
    )
    messages = rows.selectExpr("stream", "payload AS value", "content_type", "position", "offset")
    writer = (
        by_stream(messages)
        .writeStream.format("headwater")
        .queryName(f"copy-{arguments.via}")
        .option("url", arguments.url)
        .option("bucket", arguments.target)
        .option("orderColumn", "position,offset")
        .option("maxAppendMessages", "50")
        .option("checkpointLocation", arguments.checkpoint)
    )
    query = (
        writer.trigger(availableNow=True) if arguments.to_the_end else writer.trigger(processingTime="1 second")
    ).start()
    printed = ""
    while not query.awaitTermination(REPORT_SECONDS):
        progress = query.lastProgress
        line = printed if progress is None else f"batch {progress['batchId']}: {progress['numInputRows']} rows"
        if line != printed:
            print(line, flush=True)
            printed = line
    spark.stop()


if __name__ == "__main__":
    main()
