"""How hard the model tests try: `HEADWATER_EXAMPLES` is the number of examples each, 150 unless told.

Every run tries other examples, in CI too; a failure prints the blob that brings it back.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "headwater",
    max_examples=int(os.environ.get("HEADWATER_EXAMPLES", "150")),
    stateful_step_count=50,
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("headwater")
