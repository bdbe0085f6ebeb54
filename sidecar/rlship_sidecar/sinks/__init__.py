"""Where rows go. `contract` is the whole interface; each other module is one sink."""
