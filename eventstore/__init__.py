"""The log: what happened, in order. Knows SQLite and pydantic; knows no sandbox, no GPU."""
