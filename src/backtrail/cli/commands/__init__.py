"""One module per command, each with a `command`; `import_` because `import` is a keyword."""
