"""`report`: usage, rates and sizes."""
