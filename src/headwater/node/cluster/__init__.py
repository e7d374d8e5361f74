"""A node among others on a shared log: membership, barriers, chores under a lease, and what operators see."""
