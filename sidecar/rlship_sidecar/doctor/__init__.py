"""What is wrong around an experiment, and what to do: facts are gathered first, and findings follow from them."""
