"""Frameworks that call rlship through their own hooks. Each module imports its framework only once it is used."""
