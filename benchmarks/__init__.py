"""Measures the promises about speed and size, beside something comparable in the same minute."""
