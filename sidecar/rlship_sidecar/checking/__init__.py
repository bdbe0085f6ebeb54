"""What is wrong with a writer's file, line by line, for who writes the writer."""
