"""The GPUs that torch sees."""

import os


def gpus() -> list[str]:
    """The GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them.

    Numbers are in the order of the PCI bus; CUDA's own would be by speed.
    """
    import torch

    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    count = torch.cuda.device_count()
    names = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count)))).split(",")
    return [name.strip() for name in names[:count]]


def instead_of_bfloat16() -> str | None:
    """``float16`` where a GPU computes bfloat16 slowly, by other types (a T4); None elsewhere, and without GPUs."""
    import torch

    lacks_it = torch.cuda.is_available() and not torch.cuda.is_bf16_supported(including_emulation=False)
    return "float16" if lacks_it else None
