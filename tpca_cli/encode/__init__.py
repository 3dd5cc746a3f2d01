"""The flow of `tpca encode`: a folder becomes an archive.

run            survey, choose basis, search step, code, write
sample         the pixels that everything is tried on first
choose_design  method and framing by cost on a sample
choose_basis   the basis of that design, and what is stored of it
code_blocks    images of one block to coded bytes with their measured error
append         new images into an archive that exists
changes        which source files are new or changed
remote         the same work on the workers of a cluster
"""
