"""The file objects that HDF5 sees never raise, and always read back what was written to them."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpca_cli.store.hdf5 import OutputFile


@settings(max_examples=50)
@given(
    writes=st.lists(st.tuples(st.integers(0, 60), st.binary(min_size=1, max_size=20)), max_size=12),
    broken=st.integers(0, 12),
)
def test_an_output_file_reads_back_what_was_written_whether_or_not_it_failed(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[int, bytes]], broken: int
) -> None:
    fd = os.open(tmp_path_factory.mktemp("output") / "x", os.O_RDWR | os.O_CREAT)
    file, model = OutputFile(fd), bytearray()
    with pytest.MonkeyPatch.context() as patch:
        for number, (offset, data) in enumerate(writes):
            if number == broken:

                def refuse(*_: Any) -> int:
                    raise OSError(errno.ENOSPC, "full")

                patch.setattr(os, "pwrite", refuse)
            model.extend(bytes(max(0, offset + len(data) - len(model))))
            model[offset : offset + len(data)] = data
            file.seek(offset)
            assert file.write(data) == len(data)
        assert file.seek(0, os.SEEK_END) == len(model)
        file.seek(0)
        assert file.read() == model
        assert (getattr(file.failure, "errno", None) == errno.ENOSPC) == (broken < len(writes))
    os.close(fd)
