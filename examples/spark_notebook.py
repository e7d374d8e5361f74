"""Streams as tables, cell by cell: open it as a notebook (Jupyter, VS Code), or run it as a script.

headwater serve &
python examples/spark_notebook.py
"""

# %% [markdown]
# # From streams to tables and back
# One stream per customer, written over HTTP; the same history as a table in Spark; and a result computed from it, written
# back to streams exactly once.

# %%
import json
import os
import tempfile
from pathlib import Path

from headwater.client import Client
from headwater.spark.session import session

URL = os.environ.get("HEADWATER_URL", "http://127.0.0.1:4437")
spark = session("notebook")
folder = Path(tempfile.mkdtemp(prefix="headwater-notebook-"))

# %% [markdown]
# ## Some history
# Any HTTP client will do; this one is Headwater's. Each customer is a stream of JSON messages in the bucket `visits`.

# %%
with Client(f"{URL}/v1/stream") as client:
    for customer in range(20):
        stream = client.stream(f"visits/customer-{customer:02}", content_type="application/json")
        stream.create("application/json")
        pages = [{"page": f"/p{number % 5}", "ms": 20 + 7 * number} for number in range(10 + customer)]
        stream.append(json.dumps(pages))

# %% [markdown]
# ## The bucket is a table
# A batch read includes everything that was acknowledged before it.

# %%
visits = spark.read.format("headwater").option("url", URL).option("bucket", "visits").option("value", "string").load()
visits.select("stream", "record", "committed_at", "value").orderBy("stream", "record").show(5, truncate=False)
assert visits.count() == sum(10 + customer for customer in range(20))

# %% [markdown]
# ## Typed columns and a query

# %%
typed = visits.selectExpr("stream", "record", "from_json(value, 'page string, ms long') as visit").select(
    "stream", "record", "visit.*"
)
by_page = typed.groupBy("page").agg({"ms": "avg", "*": "count"}).orderBy("page")
by_page.show()

# %% [markdown]
# ## New messages, as a stream
# A streaming query reads what is new since its checkpoint. With `availableNow` it stops when it has read everything;
# without it, it keeps running. The target is a bucket of streams: retries write nothing twice.

# %%
copy = (
    spark.readStream.format("headwater")
    .option("url", URL)
    .option("bucket", "visits")
    .option("value", "string")
    .option("startingOffsets", "earliest")
    .load()
    .selectExpr("concat('seconds/', stream) as stream", "offset", "to_json(named_struct('visit', record)) as value")
)


def run_once() -> None:
    """Copy what is new, then stop."""
    query = (
        copy.writeStream.format("headwater")
        .option("url", URL)
        .option("contentType", "application/json")
        .option("orderColumn", "offset")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .queryName("notebook-copy")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


run_once()
run_once()

# %%
with Client(f"{URL}/v1/stream") as client:
    copied = client.stream("seconds/customer-07").read_json()
assert copied == [{"visit": number} for number in range(17)]
print(f"customer-07 was copied once: {len(copied)} messages")
