"""Quantised coefficients to bytes and back: integers only, encoder and decoder mirror each other.

| module | holds |
|---|---|
| `coder` | a block of pictures to bytes and back, with the basis, the step and the tables of one group |
| `basis_coding` | a dense basis to bytes and back: eigentensors as pictures |
| `tiling` | pictures to planes of tiles and back, lapped or not |
| `restore` | the filter after decoding |
| `learned` | the small network before it |
| `bands` | pictures in parts of a bounded size |
| `grid` | where the tiles of a block lie |
| `scan_order` | the order of components, and which magnitudes each of them sees |
| `contexts` | scales, weights and classes: the context model |
| `priors` | the fitted numbers that every model starts from |
| `token_tables` | how frequent tokens are, for blocks that are read without learning |
| `kernel_job`, `block_job` | the fields of a job for the compiled kernel, and how a block fills them |
| `kernel_run` | jobs run: coefficients, symbols or whole pictures |
"""
