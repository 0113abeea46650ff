"""Programs that give the same results on a framework's own store and on backtrail's, on every engine."""
