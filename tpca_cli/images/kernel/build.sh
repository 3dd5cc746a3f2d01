#!/bin/sh
# Builds bicubic.wasm, which is part of the package, from its source beside it. Needs clang and lld.
set -eu
cd "$(dirname "$0")"
digest=$(sha256sum < bicubic.c | cut -c1-15)
clang --target=wasm32 -std=c11 -O3 -msimd128 -mbulk-memory -ffreestanding -nostdlib -Wall -Wextra -Werror \
    "-DSOURCE=0x$digest" -Wl,--no-entry -Wl,--strip-all -Wl,--export=__heap_base -o bicubic.wasm bicubic.c
