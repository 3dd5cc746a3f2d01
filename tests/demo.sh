#!/bin/sh
# The whole story on sample_data/: learn a basis, compress with it, look inside, restore, check.
set -eu
out=demo_out
rm -rf "$out" && mkdir "$out"

step() { printf '\n$ tpca %s\n' "$*"; tpca "$@"; }

step fit-basis sample_data -o "$out/basis.h5" --method rank1 --tile 8
step encode sample_data -o "$out/sample.h5" --psnr 34
step inspect "$out/sample.h5"
step decode "$out/sample.h5" -o "$out/restored"
step verify "$out/sample.h5" --against sample_data --min-psnr 29

raw=$(tpca inspect "$out/sample.h5" --json | python -c 'import json, sys; print(json.load(sys.stdin)["raw_bytes"])')
files=$(find sample_data -type f ! -name '*.py' -exec cat {} + | wc -c)
archive=$(wc -c < "$out/sample.h5")
psnr=$(tpca inspect "$out/sample.h5" --json | python -c 'import json, sys; print(round(json.load(sys.stdin)["psnr"], 2))')
printf '\n%-28s %10s\n' "what" "bytes"
printf '%-28s %10d\n' "pixels of sample_data/" "$raw" "files of sample_data/" "$files" "$out/sample.h5" "$archive"
printf '\nOne file, 1/%d of the pixels, at %s dB; the images are back in %s/restored.\n' "$((raw / archive))" "$psnr" "$out"
