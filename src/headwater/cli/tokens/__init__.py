"""`headwater token`: the access file, its tokens, and tickets."""
