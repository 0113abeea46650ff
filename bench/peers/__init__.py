"""The neighbours, each driven through its own public interface, at a durability that is set and not assumed."""
