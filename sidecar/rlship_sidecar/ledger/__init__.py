"""The ledger's join: what became of each group of samples on its way from the generator to the trainer."""
