"""What people see of a store: values as JSON, places by name, history as a graph, messages as a conversation.

Used by the command line and by the web inspector alike, so that both say the same. Stands on the public API only.
"""
