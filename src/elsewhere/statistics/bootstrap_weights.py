"""One resampling engine: one weight per patient, drawn in blocks, never stored whole.

A resample is a vector of integer weights, one per patient. The stream depends on (key, seed, block)
alone, where key is the cohort's hash and a block is 64 resamples: not on threads, not on how many rows
are passed at once. So forty models share the same resamples (ST-09), and leaving out a patient, a
site or a group is a vector of weights too.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numba
import numpy as np
import numpy.typing as npt

from elsewhere.errors import check_seed

if TYPE_CHECKING:
    from elsewhere.statistics.clusters import Clusters
    from elsewhere.statistics.evaluator import Evaluator

Weights = npt.NDArray[np.uint16]
BLOCK = 64
_ROW_BUDGET_BYTES = 32 * 2**20
_PIECE = 8192


@numba.njit(cache=True, nogil=True, boundscheck=False)
def _fill_weights(
    bits: npt.NDArray[np.uint64],
    order: npt.NDArray[np.int32],
    starts: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    out: Weights,
) -> None:
    """Row by row, counts[p] uniform draws within each piece of patients, two 32-bit draws per word."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    for r in range(out.shape[0]):
        words, row = bits[r], out[r]
        row[:] = 0
        k = 0
        for p in range(starts.size - 1):
            patients = order[starts[p] : starts[p + 1]]
            size = np.uint64(patients.size)
            end = k + counts[p]
            if k & 1 and k < end:
                row[np.uint32(patients[((words[k >> 1] >> half) * size) >> half])] += np.uint16(1)
                k += 1
            for at in range(k >> 1, end >> 1):
                word = words[at]
                row[np.uint32(patients[((word & low) * size) >> half])] += np.uint16(1)
                row[np.uint32(patients[((word >> half) * size) >> half])] += np.uint16(1)
            if end & 1 and k < end:
                row[np.uint32(patients[((words[end >> 1] & low) * size) >> half])] += np.uint16(1)
            k = end


def generator_for(key: str, seed: int, *stream: int) -> np.random.Generator:
    """Make the generator of one named stream.

    Args:
        key: Names the stream of random numbers: the hash of the cohort.
        seed: The seed of every draw.
        *stream: Numbers that name the stream.

    Returns:
        The generator of one named stream: every draw in the program goes back to such a call.
    """
    seed = check_seed(seed)
    digest = hashlib.sha256(key.encode()).digest()
    words = [int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4)]
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence([*words, seed, *stream])))


class WeightStream:
    """Stream of weight vectors over the patients of a partition, drawn within strata (ST-01).

    Iterating over it yields (first resample's number, weights) in blocks; the numbers depend on the key, the
    seed and the block alone.

    Args:
        partition: Maps cases to patients and sites.
        key: Hash of the cohort, which names the stream of random numbers.
        seed: Seed of every draw.
        resamples: Number of resamples.
        by_site: Whether strata are divided by site.
        by_class: Whether strata are divided by class as well.
        strata: The stratum of each patient, in place of the partition's; None for those.
    """

    def __init__(
        self,
        partition: Clusters,
        *,
        key: str,
        seed: int,
        resamples: int,
        by_site: bool = True,
        by_class: bool = False,
        strata: npt.NDArray[np.int32] | None = None,
    ) -> None:
        self.key, self.seed, self.resamples = key, seed, resamples
        self.n_clusters = partition.n_clusters
        if strata is None:
            strata = partition.strata(by_site=by_site, by_class=by_class)
        self._order = np.argsort(strata, kind="stable").astype(np.int32)
        sizes = np.bincount(strata) if strata.size else np.zeros(0, dtype=np.int64)
        self._piece_sizes = [
            np.diff(np.linspace(0, n, -(-n // _PIECE) + 1).astype(np.int64)) for n in sizes.tolist()
        ]
        pieces = np.concatenate([np.zeros(1, dtype=np.int64), *self._piece_sizes])
        self._starts = np.cumsum(pieces).astype(np.int64)
        self._whole = all(sizes.size == 1 for sizes in self._piece_sizes)
        self._stream_id = (1 if by_site else 0) + (2 if by_class else 0)

    def _counts(self, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        """How many draws fall in each piece of a stratum: multinomial over the pieces, then uniform within.

        The same distribution as drawing over the whole stratum, but each piece stays in the cache.
        """
        shares = [
            sizes if sizes.size == 1 else rng.multinomial(int(sizes.sum()), sizes / sizes.sum())
            for sizes in self._piece_sizes
        ]
        return np.concatenate([np.zeros(0, dtype=np.int64), *shares])

    @property
    def n_blocks(self) -> int:
        """How many blocks there are."""
        return -(-self.resamples // BLOCK)

    def block(self, index: int) -> Iterator[tuple[int, Weights]]:
        """Draw one block of resamples.

        Args:
            index: The number of the block.

        Yields:
            (first resample's number, weights) pieces of one block, each small enough to stay in memory.
        """
        rng = generator_for(self.key, self.seed, self._stream_id, index)
        begin, end = index * BLOCK, min((index + 1) * BLOCK, self.resamples)
        rows = max(1, min(BLOCK, _ROW_BUDGET_BYTES // max(1, 2 * self.n_clusters)))
        words = (self.n_clusters + 1) // 2
        for first in range(begin, end, rows):
            piece = np.empty((min(rows, end - first), self.n_clusters), dtype=np.uint16)
            if self._whole:
                bits = rng.integers(0, 2**64, size=(len(piece), words), dtype=np.uint64)
                _fill_weights(bits, self._order, self._starts, np.diff(self._starts), piece)
            else:
                for r in range(len(piece)):
                    counts = self._counts(rng)
                    bits = rng.integers(0, 2**64, size=(1, words), dtype=np.uint64)
                    _fill_weights(bits, self._order, self._starts, counts, piece[r : r + 1])
            yield first, piece

    def __iter__(self) -> Iterator[tuple[int, Weights]]:
        for index in range(self.n_blocks):
            yield from self.block(index)


def thread_count(threads: int | None = None) -> int:
    """Count the threads that may be used.

    Args:
        threads: How many threads; None for all processors.

    Returns:
        The number that was asked for, or the processors of this process.
    """
    return max(
        1,
        threads
        if threads is not None
        else len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1,
    )


def draw(
    evaluators: Sequence[Evaluator],
    stream: WeightStream,
    *,
    metrics: Sequence[str] | None = None,
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[npt.NDArray[np.float64]]:
    """Evaluate several models on every resample, all on the same weights.

    With `metrics`, only these are kept: the draws of many models are the larger part of a ranking's memory.

    Args:
        evaluators: The metrics of each model, all on the same cases.
        stream: The resamples.
        metrics: Names of metrics; None for all.
        threads: How many threads; None for all processors.
        progress: Called to report how far the work is.

    Returns:
        One (resamples, metrics) array per evaluator.
    """
    wanted = [slice(None) if metrics is None else [ev.index(name) for name in metrics] for ev in evaluators]
    widths = [len(ev.specs) if metrics is None else len(metrics) for ev in evaluators]
    results = [np.full((stream.resamples, width), np.nan) for width in widths]

    def work(index: int) -> int:
        done = 0
        for first, weights in stream.block(index):
            for evaluator, columns, out in zip(evaluators, wanted, results, strict=True):
                out[first : first + len(weights)] = evaluator.evaluate(weights)[:, columns]
            done += len(weights)
        return done

    workers = min(thread_count(threads), stream.n_blocks) or 1
    if workers == 1:
        for index in range(stream.n_blocks):
            done = work(index)
            if progress:
                progress(done)
        return results
    with ThreadPoolExecutor(workers) as pool:
        for done in pool.map(work, range(stream.n_blocks)):
            if progress:
                progress(done)
    return results
