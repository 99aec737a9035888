"""Sizes of the blocks that passes work in, each with its reason.

None of them depends on the number of threads: the same blocks give the same bits.
"""

from __future__ import annotations

# First and last, which does not belong to it.
Range = tuple[int, int]

# Sums over kernels are cut into this many parts, which threads add up on their own and whose sums
# are then added in order: more than the threads of most machines, and few enough to keep them all.
SUM_PARTS = 64

# Columns of a pass that adds up rows of one matrix or of the state of MWUMKL: 16 kB of float64 sums
# stay in the first-level cache. Over many matrices half of it, which gives more threads work.
CACHED_COLUMNS, MATRIX_COLUMNS = 2048, 1024

# Entries of float64 that stay in the cache while several passes go over them: 0.5 MB is in the
# second-level cache of a core, 2 MB is its part of the shared one, 8 MB most of that.
FEW_ENTRIES, CACHED_ENTRIES, SHARED_CACHE_ENTRIES = 2**16, 2**18, 2**20

# Sides of the squares in which a matrix is compared with its transpose, 8 kB twice in the
# first-level cache, and rows that a thread copies to the other side of the diagonal at a time.
TILE, MIRROR_ROWS = 32, 64

# Rows a thread takes at a time when a block of a matrix is gathered.
GATHERED_ROWS = 64

# Entries of a temporary stack of matrices or products: 32 MB of float64, little beside the data.
STACK_ENTRIES = 2**22

# Rows of a Gaussian kernel that are computed at a time against a run of columns, and the longest
# run: the rows and the samples of the run stay in the first-level cache (16 + 10 kB in float32).
# Eight rows are also a multiple of the SIMD width, and few enough terms for a sum in float32.
GAUSSIAN_ROWS, GAUSSIAN_COLUMNS = 8, 512
# Kernels that share their distances at most: so few terms a sum in float32 may have.
GAUSSIAN_SHARED = 64
# Rows of a sum of such kernels that are held at a time, 128 kB: the samples of the run are loaded
# once for all of them.
GAUSSIAN_TILE = 32
# How many multiplications the time of one of their values, an exponential, is.
GAUSSIAN_WORK = 8

# Values of such kernels that a thread computes at a time, about a millisecond: threads end
# together, and a time limit is noticed soon.
GAUSSIAN_VALUES = 2e6
# Kernels from which on threads share them out, and not the rows of all of them.
GAUSSIAN_MANY = 256
# Parts that rows are cut into where there are so many kernels.
GAUSSIAN_PARTS = 16

# Sequences of equal length that a thread encodes or looks up at a time: their words and sums at one
# position, 100 kB, stay in the second-level cache.
STRING_ROWS = 4096
# Rows of a matrix of such sequences that a thread computes at a time: a row of 10^4 takes 0.3 ms.
PAIR_ROWS = 16
# Positions of sequences are cut into at most so many parts for threads, of at least so many
# positions: a part rolls a word's letters once more. The sums that the parts of one window keep for
# themselves have at most so many numbers, 256 MB, or the positions are cut less.
POSITION_PARTS, POSITIONS, POSITION_SUMS = 16, 8, 2**25

# Rows of inner products of k-mer counts that a thread computes at a time: enough for BLAS to be
# quick with the dense part, and 5 MB of sums against 10^4 samples.
KMER_ROWS = 64
# K-mers or letters that a thread reads at a time, about 0.3 ms, and letters that are encoded or
# copied at a time: temporary arrays take up to 24 bytes for each.
KMERS, ENCODED_LETTERS = 2**15, 2**20
