"""`export`: streams as typed tables."""
