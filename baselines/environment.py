"""The environment of a process that does cells: its threads, its GPU, and no bars of progress."""

import os

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
)


def environment(threads: int, gpus: float | None = None) -> dict[str, str]:
    """Environment variables for a process with that number of threads; libraries read them on import.

    With 0 ``gpus`` it sees none: Ray would show it all of its machine's.

    Batches differ in length; expandable segments keep them from fragmenting a GPU's memory.
    """
    others = {
        "TOKENIZERS_PARALLELISM": "false",
        "TQDM_DISABLE": "1",
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    if gpus == 0:
        others["CUDA_VISIBLE_DEVICES"] = ""
    return dict.fromkeys(_THREAD_VARIABLES, str(threads)) | others


def restrict(threads: int, place: int = 0) -> None:
    """Give this process that number of threads, and one of the GPUs that it sees: the one of that place, in turn.

    It must not have used a GPU yet. With several, the library would train one cell on all, in other batches.
    """
    os.environ.update(environment(threads))
    import torch

    from eval_kit.search.gpus import gpus

    torch.set_num_threads(threads)  # it may have been imported before
    if seen := gpus():
        os.environ["CUDA_VISIBLE_DEVICES"] = seen[place % len(seen)]
