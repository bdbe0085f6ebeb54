"""What comes in: files are found, followed and read again."""
