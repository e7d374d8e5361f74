"""What the node does on its own: reap what has expired, settle what forks owe, take images."""
