"""Files and pixels that come back exactly: JPEG files bit for bit, pixels by prediction, others as they are.

Arrays and bytes in, bytes out: no paths, no image decoders. Each block is coded by itself, with a model that
starts from what other folders taught it (`priors`) and learns while it goes.
"""
