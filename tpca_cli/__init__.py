"""tpca: compress folders of images with a tensor-PCA basis learned from the folder itself."""

__version__ = "0.1.0"
