"""The stores that are compared, each used through its public interface, with its durability set explicitly."""
