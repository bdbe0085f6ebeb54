"""What is wrong with a writer's file, line by line, for authors of a writer."""
