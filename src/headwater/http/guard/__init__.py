"""Authentication, authorization and limits: who a client is, what it may do, and how much."""
