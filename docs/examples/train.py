"""Train a small network on the images of an archive: python train.py photos.h5 [epochs]

The archive is of a folder with one folder for each class. Needs pip install 'tpca-cli[torch]'.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader

from tpca_cli.torch import ImageStream

path, epochs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
torch.manual_seed(0)


def prepared(pixels):
    """(h, w, c) uint8 to (c, 32, 32) between -1 and 1: batches need images of one size."""
    image = torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 127.5 - 1
    return nn.functional.interpolate(image, (32, 32), mode="bilinear", antialias=True)[0]


stream = ImageStream(path, transform=prepared, seed=1)
loader = DataLoader(stream, batch_size=16, num_workers=2)
network = nn.Sequential(
    nn.Conv2d(3, 16, 3, stride=2, padding=1),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(32, len(stream.classes)),
)
optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
print(len(stream.images), "images of", len(stream.classes), "classes:", ", ".join(stream.classes))
for epoch in range(epochs):
    stream.set_epoch(epoch)
    right = seen = 0
    for images, classes in loader:
        scores = network(images)
        loss = nn.functional.cross_entropy(scores, classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right += int((scores.argmax(1) == classes).sum())
        seen += len(classes)
    print(f"epoch {epoch}: {right} of {seen} right")
