"""The decided log of a shard: one seam, `CommandLog`, and its implementations side by side."""
