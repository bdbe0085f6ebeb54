"""What people are told of a running experiment."""
