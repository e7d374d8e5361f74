"""The log that orders a shard's commands: one seam, `CommandLog`, and its implementations side by side."""
