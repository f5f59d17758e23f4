"""All that is read back from the log: fold, leaderboard, live log, audit, replays."""
