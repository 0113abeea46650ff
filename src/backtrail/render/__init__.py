"""Rendering for people: values as JSON, checkpoints by ref, history as a graph, messages as a conversation.

The command line and the web inspector both use it, so that they show the same. It uses the public API only.
"""
