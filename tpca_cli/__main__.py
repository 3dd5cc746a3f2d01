"""`python -m tpca_cli` is `tpca`."""

from tpca_cli.cli.main import main

if __name__ == "__main__":
    main()
