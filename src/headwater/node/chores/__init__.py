"""What a shard does by itself: expire streams, pay the debts of forks, take images, delete unused snapshots."""
