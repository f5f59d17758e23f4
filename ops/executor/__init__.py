"""The place of the executor, which will replay launch plans and run trusted native arms (grade `plan`). Nothing is here yet."""
