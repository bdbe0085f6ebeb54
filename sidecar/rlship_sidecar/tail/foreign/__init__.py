"""Files of other frameworks: where they lie, which reader knows them, and their content as native lines."""
