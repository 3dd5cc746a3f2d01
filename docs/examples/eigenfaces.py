"""Eigenfaces: a basis of gray faces, their scores as numbers, nearest neighbours, and a face rebuilt.

    python docs/examples/eigenfaces.py OUTPUT_FOLDER

The faces are drawn: six people, each with a head, eyes, brows, nose and mouth of their own, in poses and
lights that differ. `eigenfaces.png` in the folder shows what came out.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pandas
from PIL import Image, ImageDraw

PEOPLE, POSES, SIDE = 6, 20, 48


def face(person: int, pose: int) -> Image.Image:
    """One face, drawn four times as large and made smaller, so that its edges are smooth."""
    own, now = np.random.default_rng(person), np.random.default_rng(1000 * person + pose)
    wide, eyes, brow, nose, mouth = own.uniform([13, 5, 1, 5, 5], [18, 8, 4, 9, 10])
    skin, hair = own.uniform(130, 210), own.uniform(20, 90)
    turn, nod, light, smile = now.normal(0, [1.0, 0.7, 10.0, 1.5])
    picture = Image.new("L", (4 * SIDE, 4 * SIDE), int(60 + now.uniform(-10, 10)))
    draw = ImageDraw.Draw(picture)
    x, y = SIDE / 2 + turn, SIDE / 2 + nod

    def oval(left: float, top: float, right: float, bottom: float, gray: float) -> None:
        draw.ellipse([4 * left, 4 * top, 4 * right, 4 * bottom], fill=int(np.clip(gray, 0, 255)))

    oval(x - wide - 1, y - 22, x + wide + 1, y + 10, hair)
    oval(x - wide, y - 16, x + wide, y + 20, skin + light)
    for side in (-1, 1):
        ex = x + side * eyes + 0.5 * turn
        oval(ex - 3, y - 6, ex + 3, y - 2, 240)
        oval(ex - 1.5 + turn / 3, y - 6, ex + 1.5 + turn / 3, y - 2, 30)
        line = [4 * (ex - 4), 4 * (y - 9), 4 * (ex + 4), 4 * (y - 9 - brow / 3)]
        draw.line(line, fill=int(hair), width=int(4 * brow / 2))
    oval(x - 1.5 + turn / 2, y - 3, x + 1.5 + turn / 2, y - 3 + nose, skin + light - 35)
    box = [4 * (x - mouth), 4 * (y + 8 - smile), 4 * (x + mouth), 4 * (y + 14)]
    draw.arc(box, 20, 160, fill=60, width=8)
    return picture.resize((SIDE, SIDE), Image.Resampling.LANCZOS)


def tpca(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "tpca_cli", *map(str, words)], check=True)


def main(root: Path) -> None:
    # a folder of gray faces, one folder inside it for each person
    for person in range(PEOPLE):
        (root / "faces" / f"person{person}").mkdir(parents=True, exist_ok=True)
        for pose in range(POSES):
            face(person, pose).save(root / "faces" / f"person{person}" / f"{pose:02d}.png")

    # the basis (Algorithm 3: fewer faces than pixels), and the scores of its own images in the same run
    basis, scores = root / "basis.h5", root / "scores.h5"
    fit = ("--method", "subspace", "--center", "--components", 60, "--scores", scores, "--force")
    tpca("fit-basis", root / "faces", "-o", basis, *fit)
    tpca("inspect", scores, "--scatter", root / "scatter.png", "--force")

    # plain numbers: names, labels and coefficients, as a table
    with h5py.File(scores) as file:
        table = pandas.DataFrame(file["coefficients"][:], index=file["name"].asstr()[:])
        labels = pandas.Series(file["label"].asstr()[:], index=table.index)
        strength = file["eigenvalue"][:]
        matrix, mean = file["basis/matrix"][:], file["basis/mean"][:]  # (L, M), (h, w, 1)
    print(table.groupby(labels).mean().iloc[:, :3].round(0))

    # nearest neighbours by distance between scores: the same as between pictures, as far as 60 components go
    d = table.to_numpy()
    distance = np.linalg.norm(d[:, None] - d[None], axis=2)
    np.fill_diagonal(distance, np.inf)
    nearest = distance.argsort(axis=1)[:, :5]
    right = float((labels.to_numpy()[nearest[:, 0]] == labels.to_numpy()).mean())
    print(f"the nearest neighbour is the same person for {100 * right:.0f} % of {len(d)} faces")

    # a face from its first M components: x = mean + U d (eq 4.1.1)
    example = 2 * POSES + 7
    rebuilt = [mean + (matrix[:, :m] @ d[example, :m]).reshape(mean.shape) for m in (1, 5, 15, 60)]
    energy = strength.cumsum() / strength.sum()
    print(f"15 of {len(strength)} components hold {100 * energy[14]:.1f} % of what 60 do")

    # everything in one picture: eigenfaces, a face with its neighbours, the face rebuilt
    faces = [np.asarray(Image.open(root / "faces" / name), float) for name in table.index]
    tensors = [matrix[:, k].reshape(SIDE, SIDE) for k in range(6)]
    rows = [
        [128 + 127 * u / np.abs(u).max() for u in tensors],
        [faces[example], *(faces[k] for k in nearest[example])],
        [faces[example], *(x[:, :, 0] for x in rebuilt), mean[:, :, 0]],
    ]
    sheet = np.concatenate([np.concatenate(row, axis=1) for row in rows])
    picture = Image.fromarray(np.clip(np.rint(sheet), 0, 255).astype(np.uint8))
    picture.resize((2 * sheet.shape[1], 2 * sheet.shape[0])).save(root / "eigenfaces.png", optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
