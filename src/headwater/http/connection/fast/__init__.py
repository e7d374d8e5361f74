"""The short path: usual requests, answered in one compiled step."""
