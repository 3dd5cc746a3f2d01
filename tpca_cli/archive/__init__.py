"""The archive: many images in one file.

batches   many images at once: orders that keep blocks together, threads that decode ahead
format    the table of what is where
index     names, sizes and errors of the images, and the blocks that hold them
limits    how much an archive may ask for when it is opened
lists     what is stored as JSON: inputs left out, kinds of metadata, reasons
packing   which images share a block
reader    `Archive`, a lazy sequence of images
writer    groups, index and payload into a file
"""
