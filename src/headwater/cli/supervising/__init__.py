"""Several processes that are one server: who starts them, starts them anew, and ends them."""
