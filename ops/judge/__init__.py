"""Runs in the judge container: owns inputs, expected outputs, comparator and clock; never imports a candidate."""
