"""The paper: self-adjoint tensor operators of images, their eigentensors, and bases made of these.

    algorithm1              A_ij = X_in X_jn, the L x L operator, and its eigentensors
    algorithm1_streamed     the same without forming A: products by passes over the frames
    algorithm2              one small operator per mode, and the rank-1 tensors of their eigenvectors
    algorithm3              the N x N operator of fewer frames than values, and the space that they span
    solve                   which of them: operators, accumulation and solvers by the name of the method
    basis                   what all of them give: an orthonormal basis with `project` and `reconstruct`
    fixed_basis             a basis in integers, as archives hold it
    exact, fold             sums that are exact, and passes over frames whose sums always have the same bits
    eigen, krylov           eigenpairs by LAPACK, and the strongest ones by block iteration

Arrays in, arrays out: no paths, no files, no printing. The linear index m of eq 2.17 is C order here: by
Proposition 1 no eigenvalue or eigentensor depends on that choice.
"""
