"""Compute for ever."""

while True:
    pass
