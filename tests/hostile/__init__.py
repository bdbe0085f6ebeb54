"""What a user who may write in an experiment can make of it, at full size, and what that does to the others."""
