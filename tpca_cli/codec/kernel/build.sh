#!/bin/sh
# Builds walk.wasm, which is part of the package, from its sources beside it. Needs clang and lld.
set -eu
cd "$(dirname "$0")"
digest=$(cat coder.h values.h lowest.h pixels.h restore.h walk.c | sha256sum | cut -c1-15)
clang --target=wasm32 -std=c11 -O3 -msimd128 -mbulk-memory -ffreestanding -nostdlib -Wall -Wextra -Werror \
    "-DSOURCE=0x$digest" -Wl,--no-entry -Wl,--strip-all -Wl,--export=__heap_base -o walk.wasm walk.c
