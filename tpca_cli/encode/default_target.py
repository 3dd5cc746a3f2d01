"""Which target these images get: what was asked for, or, where nothing was, what suits them.

SSIMULACRA 2 is about photographs of 8 bits. It means little for thumbnails, whose few scales its weights were
not fitted to, and forgives an image of little contrast that loses all of it. Such images are held to a PSNR.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tpca_cli.encode.choose_basis import GroupDraft, tune_of
from tpca_cli.errors import UsageError
from tpca_cli.rate import Target
from tpca_cli.sources.probe import Survey

PHOTOGRAPH = 128
"""Pixels on the shorter side of most images that a quality is aimed at without being asked."""


def target_for(target: Target, found: Survey, method: str, basis: Path | None) -> Target:
    """The target, by the headers of the images; a quality that has no meaning for them is refused."""
    if target.kind != "quality":
        return target
    deep = sum(len(members) for kind, members in found.groups.items() if kind.dtype == "u2")
    plain = not target.visual or target.components is not None or method == "operator" or basis is not None
    if target.detail:
        sides = [min(m.height, m.width) for members in found.groups.values() for m in members]
        small = sum(side < PHOTOGRAPH for side in sides)
        fits = not deep and not plain and method != "subspace" and 2 * small < len(sides)
        return target if fits else target.without_quality()
    if deep:
        raise UsageError(
            f"--quality is for images of 8 bits, and {deep} of these have 16: use --psnr, or encode them "
            "apart"
        )
    if plain:
        raise UsageError(
            "--quality needs steps that are made for it: leave out --tune psnr, --components, --basis and "
            "--method operator, or ask for --psnr"
        )
    return target


def target_with(target: Target, drafts: Sequence[GroupDraft]) -> Target:
    """The target, once a sample of the images is known; the drafts follow it."""
    if all(draft.range.reference >= draft.range.peak for draft in drafts):
        return target
    suited = target.without_quality()
    if suited.kind != target.kind:
        for draft in drafts:
            draft.tune = tune_of(suited)
    return suited
