"""The flows that read archives: `tpca decode`, `tpca verify`, `tpca repack`.

run       images back into a folder
verify    every digest, and on request every pixel
compare   source files held against their archive: what may be deleted
repack    the same images without the waste of many appends
"""
