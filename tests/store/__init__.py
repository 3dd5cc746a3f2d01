"""Laws of `tpca_cli.store`, a file of tests for each of its modules."""
