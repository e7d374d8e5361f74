"""`export`: streams into typed tables."""
