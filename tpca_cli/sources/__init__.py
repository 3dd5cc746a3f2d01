"""Files in: which images the user means, what their headers say, and their pixels.

scan        folders, files, globs and lists become a sorted list of files
probe       headers, and images sorted into groups of one kind
read_plan   which framing and sample type suit the headers
read        pixels, one by one or in batches of frames, with one rule for what cannot be read
transfer    long lists as a few columns, for the way to another process
"""
