"""How many threads the libraries of a process take; they look when they are imported."""

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS", "RAYON_NUM_THREADS")


def environment(threads: int) -> dict[str, str]:
    """Environment variables for a process of its own with so many threads."""
    return {name: str(threads) for name in VARIABLES} | {"TOKENIZERS_PARALLELISM": "false", "TQDM_DISABLE": "1"}
