"""The archive: many images in one file. `format` is the table of what is where."""

from tpca_cli.archive.facts import image_psnr, pooled_error, pooled_psnr
from tpca_cli.archive.format import FORMAT, MODES, SCHEMA, VERSION
from tpca_cli.archive.index import BlockRecord, Entry, Index
from tpca_cli.archive.reader import Archive
from tpca_cli.archive.writer import Group, embedded_basis, write_archive

__all__ = [
    "FORMAT",
    "MODES",
    "SCHEMA",
    "VERSION",
    "Archive",
    "BlockRecord",
    "Entry",
    "Group",
    "Index",
    "embedded_basis",
    "image_psnr",
    "pooled_error",
    "pooled_psnr",
    "write_archive",
]
