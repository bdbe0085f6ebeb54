"""Merging moments: section "Moments" of docs/semantics.md, read literally."""

from __future__ import annotations

from dataclasses import replace

from tests.reference.values import Moments


def merge(a: Moments, b: Moments) -> Moments:
    """a, then b."""
    if b.n == 0:
        return replace(a, nonfinite=a.nonfinite + b.nonfinite)
    if a.n == 0:
        return replace(b, nonfinite=a.nonfinite + b.nonfinite)
    return Moments(
        n=a.n + b.n,
        w=a.w + b.w,
        sum=None if a.sum is None or b.sum is None else a.sum + b.sum,
        m2=merged_m2(a, b),
        min=None if a.min is None or b.min is None else b.min if b.min < a.min else a.min,
        max=None if a.max is None or b.max is None else b.max if b.max > a.max else a.max,
        first=a.first,
        last=b.last,
        nonfinite=a.nonfinite + b.nonfinite,
    )


def merged_m2(a: Moments, b: Moments) -> float | None:
    if a.m2 is None or b.m2 is None or a.sum is None or b.sum is None:
        return None
    if a.w == 0 or b.w == 0:
        return a.m2 + b.m2
    d = b.sum / b.w - a.sum / a.w
    return a.m2 + b.m2 + d * d * (a.w * b.w / (a.w + b.w))
