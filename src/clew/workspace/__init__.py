"""A directory seen as file snapshots, shared by the threads that work in it."""
