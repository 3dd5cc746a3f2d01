"""Quantised coefficients to bytes and back: integers only, encoder and decoder mirror each other."""
