"""The scores file: the coefficients of images as plain numbers, beside their names, sizes and labels.

format    the table of groups, datasets and attributes
project   frames to coefficients, in products of a fixed size
reader    Scores: coefficients and rebuilt images, by position or name
writer    a new file
"""
