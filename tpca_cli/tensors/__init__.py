"""A list of images as one tensor of frames (n, h, w, c) that can be read again and again in blocks.

`stage` decodes in parallel and keeps the frames in memory, in a private file beside the output, or in a cache
file that a later run finds again. Whoever computes sees only `Frames` and needs to know none of this.
"""

from tpca_cli.tensors.choice import DEFAULT_TILE
from tpca_cli.tensors.frames import ArrayFrames, Frames
from tpca_cli.tensors.stage import stage
from tpca_cli.tensors.staged import Staged
from tpca_cli.tensors.tensorfile import TENSOR_SCHEMA, TensorFile

__all__ = ["DEFAULT_TILE", "TENSOR_SCHEMA", "ArrayFrames", "Frames", "Staged", "TensorFile", "stage"]
