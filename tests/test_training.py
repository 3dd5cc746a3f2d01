"""Training data: labels, shares and orders, without PyTorch; and PyTorch's datasets where it is installed."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from command import tpca
from pictures import folder
from servers import file_server
from test_examples import example

from tpca_cli import Archive
from tpca_cli.archive import batches
from tpca_cli.errors import UsageError
from tpca_cli.training import LabeledImages, epoch_order, share_of


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of two classes, in many blocks."""
    root = tmp_path_factory.mktemp("training")
    folder(root / "in" / "cats", 11, sizes=((256, 200),))
    folder(root / "in" / "dogs" / "small", 10, sizes=((200, 256),), seed=50, channels=(1, 3))
    tpca(
        "encode", root / "in", "-o", root / "a.h5", "--step", 60, "--tile", 8, "--method", "rank1", "--force"
    )
    with Archive(root / "a.h5") as archive:
        assert len(batches.by_block(archive)) > 6
    return root


def test_labels_are_folders(made: Path) -> None:
    images = LabeledImages(made / "a.h5")
    assert images.classes == ["cats", "dogs/small"] and len(images) == 21
    assert [images.classes[number] for number in images.targets] == [
        name.rpartition("/")[0] for name in images.archive.names
    ]
    first = LabeledImages(made / "a.h5", label=lambda name: name.split("/")[0], target_transform=str)
    assert first.classes == ["cats", "dogs"] and first[20][1] == "1"


def test_images_are_those_of_the_archive(made: Path) -> None:
    with Archive(made / "a.h5", mode="RGB") as archive:
        images = LabeledImages(made / "a.h5")
        shifted = LabeledImages(made / "a.h5", transform=lambda pixels: pixels.astype(int) + 1)
        for position in (0, 7, 20):
            np.testing.assert_array_equal(images[position][0], archive[position].transpose(2, 0, 1))
            np.testing.assert_array_equal(shifted[position][0], archive[position].astype(int) + 1)
        batch = images.__getitems__([20, 3, 3, 0])
        for (pixels, target), position in zip(batch, [20, 3, 3, 0], strict=True):
            np.testing.assert_array_equal(pixels, images[position][0])
            assert target == images.targets[position]
        again = pickle.loads(pickle.dumps(images))
        np.testing.assert_array_equal(again[5][0], images[5][0])


def test_training_data_may_be_behind_an_address(made: Path) -> None:
    with file_server(made) as server:
        far, near = LabeledImages(server.url("a.h5")), LabeledImages(made / "a.h5")
        assert far.targets == near.targets
        np.testing.assert_array_equal(far[9][0], near[9][0])


def test_readers_share_out_every_image_once(made: Path) -> None:
    with Archive(made / "a.h5") as archive:
        for parts in (1, 2, 3, 40):
            shares = [list(epoch_order(archive, [1, 2], part=k, parts=parts)) for k in range(parts)]
            assert sorted(position for share in shares for position in share) == list(range(21))
        assert list(epoch_order(archive, [0], shuffle=False)) == list(range(21))
        with pytest.raises(UsageError):
            list(epoch_order(archive, [0], part=2, parts=2))
        with pytest.raises(UsageError, match="mixed is 0: at least 1"):
            list(epoch_order(archive, [0], mixed=0))


@pytest.mark.parametrize(("machines", "workers"), [(1, 3), (2, 4), (3, 2), (4, 5)])
def test_machines_get_as_many_blocks_whatever_their_workers(made: Path, machines: int, workers: int) -> None:
    """No machine has two blocks more than another; together they have every image once."""
    with Archive(made / "a.h5") as archive:
        block_of = {int(p): n for n, members in enumerate(batches.by_block(archive)) for p in members}
        shares = []
        for machine in range(machines):
            parts = [share_of(machine, machines, worker, workers) for worker in range(workers)]
            shares.append([p for part in parts for p in epoch_order(archive, [1], **part)])
        counts = [len({block_of[position] for position in share}) for share in shares]
        assert max(counts) - min(counts) <= 1
        assert sorted(position for share in shares for position in share) == list(range(21))


def test_an_epoch_has_an_order_of_its_own_that_keeps_blocks_together(made: Path) -> None:
    with Archive(made / "a.h5") as archive:
        first, second = (list(epoch_order(archive, [5, epoch], mixed=2)) for epoch in (0, 1))
        assert first != second and first == list(epoch_order(archive, [5, 0], mixed=2))
        block_of = {int(p): n for n, members in enumerate(batches.by_block(archive)) for p in members}
        runs = [block_of[position] for position in first]
        for block in set(runs):  # no block comes again once two others have begun
            inside = runs[runs.index(block) : len(runs) - runs[::-1].index(block)]
            assert len(set(inside)) <= 2


def test_the_loader_of_pytorch_gets_every_image_once_in_an_epoch(made: Path) -> None:
    pytest.importorskip("torch")
    from torch.utils.data import DataLoader

    from tpca_cli.torch import BlockSampler, ImageDataset, ImageStream

    def number(pixels: np.ndarray) -> int:
        return int(pixels.astype(np.int64).sum())

    dataset = ImageDataset(made / "a.h5", transform=number)
    wanted = sorted(dataset[position] for position in range(21))
    stream = ImageStream(made / "a.h5", transform=number, seed=3)
    assert len(stream) == 21 and stream.classes == dataset.classes
    seen = []
    for workers in (0, 2):
        for epoch in (0, 1, 1):
            stream.set_epoch(epoch)
            loader = DataLoader(stream, batch_size=4, num_workers=workers)
            seen.append(
                [
                    pair
                    for sums, classes in loader
                    for pair in zip(sums.tolist(), classes.tolist(), strict=True)
                ]
            )
            assert sorted(seen[-1]) == wanted
    assert seen[0] != seen[1] and seen[1] == seen[2] and seen[3] != seen[4] == seen[5]
    shares = [[*ImageStream(made / "a.h5", transform=number, rank=k, world_size=3)] for k in range(3)]
    assert sorted(pair for share in shares for pair in share) == wanted
    # without set_epoch each epoch has an order of its own, also in workers that live on
    free = DataLoader(ImageStream(made / "a.h5", transform=number), num_workers=1, persistent_workers=True)
    one, two = ([int(sums) for sums, _ in free] for _ in range(2))
    assert sorted(one) == sorted(two) and one != two
    sampler = BlockSampler(dataset)
    assert sorted(sampler) == list(range(21)) and list(sampler) != list(sampler)
    batches_of = DataLoader(dataset, batch_size=5, sampler=sampler)
    assert sorted(p for s, c in batches_of for p in zip(s.tolist(), c.tolist(), strict=True)) == wanted


def test_the_example_trains_a_network(made: Path) -> None:
    pytest.importorskip("torch")
    told = example("train.py", made / "a.h5", 2).splitlines()
    assert told[0] == "21 images of 2 classes: cats, dogs/small"
    assert [line.split(":")[0] for line in told[1:]] == ["epoch 0", "epoch 1"]
    assert all(" of 21 right" in line for line in told[1:])


def test_the_builder_of_hugging_face_makes_a_table(made: Path, tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    told = example("huggingface.py", made / "a.h5", tmp_path)
    assert "num_rows: 21" in told and "cats/image_0000.png (200, 256) cats" in told
