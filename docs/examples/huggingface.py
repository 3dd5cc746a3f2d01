"""An archive as a dataset of Hugging Face: python huggingface.py photos.h5 cache/

Needs pip install tpca-cli datasets.
"""

import os
import sys

import datasets

from tpca_cli.training import LabeledImages


class TpcaArchive(datasets.GeneratorBasedBuilder):
    """Rows of image, label and name, from the archive that `data_files` names."""

    VERSION = datasets.Version("1.0.0")

    def _info(self):
        images = LabeledImages(self._path())
        return datasets.DatasetInfo(
            features=datasets.Features(
                {
                    "image": datasets.Image(),
                    "label": datasets.ClassLabel(names=images.classes),
                    "name": datasets.Value("string"),
                }
            )
        )

    def _path(self):
        return self.config.data_files["train"][0]

    def _split_generators(self, manager):
        return [datasets.SplitGenerator(name=datasets.Split.TRAIN, gen_kwargs={"path": self._path()})]

    def _generate_examples(self, path):
        images = LabeledImages(path, transform=lambda pixels: pixels)
        for number, (image, label) in enumerate(images.in_order(range(len(images)))):
            name = images.archive.names[images.positions[number]]
            yield number, {"image": image, "label": label, "name": name}


if __name__ == "__main__":
    builder = TpcaArchive(data_files={"train": [os.path.abspath(sys.argv[1])]}, cache_dir=sys.argv[2])
    builder.download_and_prepare()
    table = builder.as_dataset(split="train")
    print(table)
    print(table[0]["name"], table[0]["image"].size, table.features["label"].int2str(table[0]["label"]))
