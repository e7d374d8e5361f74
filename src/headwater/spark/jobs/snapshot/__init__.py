"""`snapshot`: fold each stream with a reducer and publish the result."""
