"""Which segments to rewrite, and how: merged, sorted and without dead rows."""
