"""Archives for PyTorch: `pip install 'tpca-cli[torch]'`.

    from tpca_cli.torch import ImageDataset, ImageStream

    loader = DataLoader(ImageStream("photos.h5", transform=..), batch_size=32, num_workers=2)

`ImageStream` is the faster: it reads blocks in random order and decodes each once in an epoch. `ImageDataset`
gives any image at any time; with `BlockSampler` its order keeps blocks together as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tpca_cli.training import MIXED_BLOCKS, LabeledImages, share_of

try:
    import torch
    from torch.utils.data import Dataset, IterableDataset, Sampler, get_worker_info
except ImportError as error:
    raise ImportError("tpca_cli.torch needs PyTorch: pip install 'tpca-cli[torch]'") from error

__all__ = ["BlockSampler", "ImageDataset", "ImageStream"]


class ImageDataset(LabeledImages, Dataset):
    """A map-style dataset: `dataset[i]` is (image, class); arguments as of `training.LabeledImages`."""


class _Epochs:
    """A seed for each epoch: by `set_epoch` where it was called, otherwise another one each time.

    The number of the epoch is in shared memory, so that workers which live on see it.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._epoch = torch.full((), -1, dtype=torch.int64).share_memory_()
        self._begun = 0

    def set_epoch(self, epoch: int) -> None:
        """From now on the order is the one of this epoch: the same on every machine, and in every run."""
        self._epoch.fill_(epoch)

    def next(self, drawn: int) -> list[int]:
        """The seed of the epoch that begins; `drawn` is a number that the loader drew for it."""
        self._begun += 1
        told = int(self._epoch)
        return [self.seed, 1, told] if told >= 0 else [self.seed, 2, drawn, self._begun]


class ImageStream(IterableDataset):
    """An iterable dataset: (image, class) by (image, class), in an order that differs from epoch to epoch.

    Workers of a loader, and the processes of `torch.distributed`, share out the blocks: each image comes once
    in an epoch. Their shares differ by up to a block of images. With several processes call `set_epoch`
    before each epoch, as for PyTorch's own `DistributedSampler`: otherwise every epoch has the same order.
    """

    def __init__(
        self,
        source: Any,
        *,
        shuffle: bool = True,
        seed: int = 0,
        mixed: int = MIXED_BLOCKS,
        rank: int | None = None,
        world_size: int | None = None,
        **options: Any,
    ) -> None:
        """The images of `mixed` blocks are shuffled together: more of them mix better and take more memory.

        `rank` and `world_size` are those of `torch.distributed` unless given; `options` are those of
        `training.LabeledImages`: transform, target_transform, label, mode, basis.
        """
        super().__init__()
        self.images = LabeledImages(source, **options)
        self.shuffle, self.mixed = shuffle, mixed
        self._epochs = _Epochs(seed)
        joined = torch.distributed.is_available() and torch.distributed.is_initialized()
        self.rank = rank if rank is not None else torch.distributed.get_rank() if joined else 0
        self.world_size = (
            world_size if world_size is not None else torch.distributed.get_world_size() if joined else 1
        )

    @property
    def classes(self) -> list[str]:
        """The labels, in the order of their numbers."""
        return self.images.classes

    def set_epoch(self, epoch: int) -> None:
        """The order of this epoch from now on, also in workers that live on."""
        self._epochs.set_epoch(epoch)

    def __len__(self) -> int:
        """Images in an epoch, of all workers of this process: about, where there are several processes."""
        return -(-len(self.images) // self.world_size)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        worker = get_worker_info()
        workers, number = (worker.num_workers, worker.id) if worker else (1, 0)
        drawn = worker.seed - worker.id if worker else torch.initial_seed()
        order = self.images.order(
            self._epochs.next(drawn if self.world_size == 1 else 0),
            **share_of(self.rank, self.world_size, number, workers),
            mixed=self.mixed,
            shuffle=self.shuffle,
        )
        # workers of a loader are processes already: each reads and decodes in one thread, ahead of the model
        yield from self.images.in_order(list(order))


class BlockSampler(Sampler):
    """An order for `ImageDataset` that keeps the images of a block close, another one in each epoch."""

    def __init__(self, dataset: LabeledImages, *, seed: int = 0, mixed: int = MIXED_BLOCKS) -> None:
        """The images of `mixed` blocks are shuffled together."""
        self._images, self._mixed, self._epochs = dataset, mixed, _Epochs(seed)

    def set_epoch(self, epoch: int) -> None:
        """The order of this epoch from now on."""
        self._epochs.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self._images)

    def __iter__(self) -> Iterator[int]:
        return self._images.order(self._epochs.next(torch.initial_seed()), mixed=self._mixed)
