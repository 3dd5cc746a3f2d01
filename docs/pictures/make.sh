#!/bin/sh
# Draws the README's pictures from sample_data/. Run from the top of the project: sh docs/pictures/make.sh
set -eu
tpca=${TPCA:-.venv/bin/tpca}
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$tpca" encode sample_data -o "$work/sample_data.h5" --psnr 36 --quiet
"$tpca" inspect "$work/sample_data.h5" --quiet --force \
    --gallery sample_data "$here/gallery.jpg" \
    --basis-grid "$here/basis.png" --count 24 \
    --rd sample_data "$here/rate.png"
