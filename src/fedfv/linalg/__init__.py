"""Linear algebra of a few very long rows, as the rules need it; no function knows about clients.

Small results (Gramians, weights) are double-precision tensors in main memory; long vectors keep their type and device.
All work over the d columns is one of four passes, over a tensor or over a memory-mapped file. A block is a range of
columns; `offsets` are the columns at which the blocks begin, and the number of all columns at the end.
"""

from fedfv._kernels import thin_combinations, thin_product
from fedfv.linalg._cone import dual_cone_weights, max_min_in_ball
from fedfv.linalg._equations import alpha_fair_weights, ridge_solve
from fedfv.linalg._factor import short_rows
from fedfv.linalg._passes import (
    accumulate,
    accumulate_blocks,
    along_sample,
    block_cross_gramians,
    block_gramians,
    combine,
    combine_blocks,
    deconflict,
    finite_rows,
    gramian,
    length,
    length_of_combination,
    products,
    rescale,
    sampled,
    squared_lengths,
    trimmed_mean,
)
from fedfv.linalg._quadratic import min_norm_weights, project_simplex, quadratic_weights

__all__ = [
    "accumulate",
    "accumulate_blocks",
    "along_sample",
    "alpha_fair_weights",
    "block_cross_gramians",
    "block_gramians",
    "combine",
    "combine_blocks",
    "deconflict",
    "dual_cone_weights",
    "finite_rows",
    "gramian",
    "length",
    "length_of_combination",
    "max_min_in_ball",
    "min_norm_weights",
    "products",
    "project_simplex",
    "quadratic_weights",
    "rescale",
    "ridge_solve",
    "sampled",
    "short_rows",
    "squared_lengths",
    "thin_combinations",
    "thin_product",
    "trimmed_mean",
]
