"""THE endpoint table: one row for each URL, with its methods, and for each method what it does, takes and gives.

Everything else is derived from these rows: routing, body limits, uploads, allowed methods, labels of metrics, reserved
bucket names, the OpenAPI document and the table of URLs in the reference.
"""

from headwater.http.endpoints.buckets import BUCKETS
from headwater.http.endpoints.cluster import CLUSTER
from headwater.http.endpoints.iceberg import ICEBERG_CATALOG
from headwater.http.endpoints.many_streams import MANY_STREAMS
from headwater.http.endpoints.server import SERVER, document_endpoint
from headwater.http.endpoints.streams import STREAMS
from headwater.http.router import Router
from headwater.http.routes import Endpoint

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
