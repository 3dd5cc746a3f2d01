"""The flow of `tpca fit-basis` and `tpca merge`: images become a basis file.

run       scan, stage, plan, accumulate, solve, write
plan      which algorithm, and what it costs
preview   the plan from the headers alone, for `--dry-run`
merge     operators of disjoint shards, added and solved
remote    the same frames and sums on the workers of a cluster
"""
