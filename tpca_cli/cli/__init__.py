"""The command line: one file per command, shared options in `options`."""
