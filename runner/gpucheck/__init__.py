"""Faulty GPU programs in real containers on a real GPU: what each came to, and how soon the next good one ran. See `__main__`."""
