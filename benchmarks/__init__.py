"""What is promised about speed and size, measured beside something else in the same minute."""
