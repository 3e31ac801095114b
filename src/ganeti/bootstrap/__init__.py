"""What runs where no daemon is up yet."""
