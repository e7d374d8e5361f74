"""THE endpoint table: one row for each URL, with its methods, and for each method what it does, takes and gives.

Everything else is derived from these rows: routing, body limits, uploads, allowed methods, labels of metrics, reserved
bucket names, the OpenAPI document and the table of URLs in the reference.
"""

from headwater.http.table.endpoints.buckets import BUCKETS
from headwater.http.table.endpoints.cluster import CLUSTER
from headwater.http.table.endpoints.iceberg import ICEBERG_CATALOG
from headwater.http.table.endpoints.many_streams import MANY_STREAMS
from headwater.http.table.endpoints.server import SERVER, document_endpoint
from headwater.http.table.endpoints.streams import STREAMS
from headwater.http.table.router import Router
from headwater.http.table.routes import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (
    *BUCKETS,
    *STREAMS,
    *MANY_STREAMS,
    *ICEBERG_CATALOG,
    *SERVER,
    *CLUSTER,
    document_endpoint(lambda: ENDPOINTS),
)
ROUTER = Router(ENDPOINTS)
