"""The shared log of a cluster: one JetStream stream that every node proposes to and follows."""
