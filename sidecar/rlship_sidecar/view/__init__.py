"""The page that shows experiments in a browser, and the server that answers it."""
