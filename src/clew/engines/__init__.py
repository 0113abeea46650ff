"""Engines: bytes only. `base` is the contract; each other module is one place to keep them."""
