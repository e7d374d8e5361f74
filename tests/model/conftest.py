"""The effort of the model tests: `TESTS_EXAMPLES` is the number of examples of each test, 150 by default.

Every run tries new examples, in CI too; a failure prints a blob that reproduces it.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "model",
    max_examples=int(os.environ.get("TESTS_EXAMPLES", "150")),
    stateful_step_count=50,
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("model")
