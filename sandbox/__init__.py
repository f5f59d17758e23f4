"""One job in one container: says only what was seen from outside. Cannot see the log."""
