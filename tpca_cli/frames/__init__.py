"""Images as one tensor of frames (n, h, w, c) that can be read again and again in blocks.

arrays        frames in memory, or decoded again in every pass
tensor_file   frames in a chunked HDF5 file
stage         decides where the frames of a list of images live, and puts them there
"""
