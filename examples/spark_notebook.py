"""Streams as tables, cell by cell: open it as a notebook (Jupyter, VS Code), or run it as a script.

headwater serve &
python examples/spark_notebook.py
"""

# %% [markdown]
# # From streams to tables and back
# One timeline per customer, written over HTTP; the same history as a table in Spark; and a result that is written back
# into streams, exactly once.

# %%
import json
import os
import secrets
import sys
import tempfile
from pathlib import Path

try:
    from headwater.client import Client
    from headwater.spark.session import session
except ModuleNotFoundError as missing:
    sys.exit(f"Error: {missing.name} is not installed for {sys.executable}; run `pip install 'headwater[spark]'`.")

RUN = secrets.token_hex(3)  # each run has its own buckets
URL = os.environ.get("HEADWATER_URL", "http://127.0.0.1:4437")
spark = session("notebook")
folder = Path(tempfile.mkdtemp(prefix="headwater-notebook-"))

# %% [markdown]
# ## Some history
# Any HTTP client works; this is Headwater's. Each customer is a stream of JSON messages; all are in one bucket.

# %%
with Client(URL) as client:
    for customer in range(20):
        stream = client.stream(f"visits-{RUN}/customer-{customer:02}", content_type="application/json")
        stream.create("application/json")
        pages = [{"page": f"/p{number % 5}", "ms": 20 + 7 * number} for number in range(10 + customer)]
        stream.append(json.dumps(pages))

# %% [markdown]
# ## The bucket is a table
# A batch read starts with a barrier: it sees everything that was acknowledged before.

# %%
visits = (
    spark.read.format("headwater").option("url", URL).option("bucket", f"visits-{RUN}").option("value", "string").load()
)
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
# ## New messages, as they arrive
# A streaming query reads what is new since its checkpoint. `availableNow` ends it when it has read everything; without
# that it keeps running. The target is a bucket of streams; a retried batch is written once.

# %%
copy = (
    spark.readStream.format("headwater")
    .option("url", URL)
    .option("bucket", f"visits-{RUN}")
    .option("value", "string")
    .option("startingOffsets", "earliest")
    .load()
    .selectExpr(
        f"concat('copies-{RUN}/', stream) as stream", "offset", "to_json(named_struct('visit', record)) as value"
    )
)


def run_once() -> None:
    """Copy what is new, then stop."""
    query = (
        copy.writeStream.format("headwater")
        .option("url", URL)
        .option("contentType", "application/json")
        .option("orderColumn", "offset")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .queryName(f"notebook-copy-{RUN}")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


run_once()
run_once()

# %%
with Client(URL) as client:
    copied = client.stream(f"copies-{RUN}/customer-07").read_json()
assert copied == [{"visit": number} for number in range(17)]
print(f"customer-07 was copied once: {len(copied)} messages")
