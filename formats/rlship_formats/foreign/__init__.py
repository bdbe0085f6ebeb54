"""Files that other frameworks write, read as if rlship had written them."""
