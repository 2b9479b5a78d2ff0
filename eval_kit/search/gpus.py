"""The GPUs that the driver lists, and what they cannot do: known before hours are spent on or beside them."""

import itertools
import os
import shutil
import subprocess

from eval_kit.errors import UserError

BFLOAT16_NEEDS, FLOAT16_NEEDS = (8, 0), (7, 0)
TOKENS = 70
"""Vectors of a passage in ColBERT."""
PLAID_BYTES = 65
"""Bytes of GPU memory for each vector while PLAID's index is built, according to fast-plaid's sources."""


def gpus() -> list[str]:
    """The GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them.

    As for CUDA, the list ends at the first entry that names no GPU, such as ``-1`` or ``NoDevFiles``. Numbers are in
    the order of the PCI bus, which is nvidia-smi's; CUDA's own would be by speed.
    """
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        names = (name.strip() for name in visible.split(","))
        return list(itertools.takewhile(_names_gpu, names))
    if not shutil.which("nvidia-smi"):
        return []
    listing = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=False).stdout
    lines = [line for line in listing.splitlines() if line.startswith("GPU ")]
    return list(map(str, range(len(lines))))


def refuse_unusable_gpus() -> None:
    """Refuse to run a model where torch cannot use the GPUs.

    Raises:
        UserError: as :func:`refuse_unseen_gpus` and :func:`refuse_old_gpus`.
    """
    refuse_unseen_gpus()
    refuse_old_gpus(bfloat16=False)


def refuse_unseen_gpus() -> None:
    """Refuse to run a model on the CPU beside GPUs that torch cannot use.

    Raises:
        UserError: the machine lists GPUs, and torch sees none.
    """
    if not (devices := gpus()):
        return
    import torch

    if not torch.cuda.is_available():
        raise UserError(
            f"this machine lists {len(devices)} GPUs, but torch {torch.__version__} sees none: it needs a driver for "
            f"CUDA {torch.version.cuda}; to use the CPU, set CUDA_VISIBLE_DEVICES to nothing"
        )


def refuse_old_gpus(bfloat16: bool) -> None:
    """Refuse GPUs that torch has no code for, or that lack bfloat16 where it is wanted.

    Raises:
        UserError: naming the GPU's compute capability and the one needed.
    """
    if not (devices := gpus()):
        return
    import torch

    built_for = [int(name.removeprefix("sm_")) for name in torch.cuda.get_arch_list() if name.startswith("sm_")]
    oldest = divmod(min(built_for), 10) if built_for else (0, 0)
    for device in devices:
        if (capability := _capability(device)) is None:
            continue
        capability_text = f"GPU {device} has compute capability {capability[0]}.{capability[1]}"
        if capability < oldest:
            raise UserError(f"{capability_text}, and torch {torch.__version__} needs {oldest[0]}.{oldest[1]} or more")
        if bfloat16 and capability < BFLOAT16_NEEDS:
            raise UserError(
                f"{capability_text}, and bfloat16 needs 8.0 or more; leave out --precision, or take float16"
            )


def instead_of_bfloat16() -> str | None:
    """The precision to train in where a GPU lacks bfloat16; None if all have it, or there are none."""
    capabilities = [capability for device in gpus() if (capability := _capability(device)) is not None]
    if not capabilities or min(capabilities) >= BFLOAT16_NEEDS:
        return None
    return "float16" if min(capabilities) >= FLOAT16_NEEDS else "float32"


def refuse_small_gpus(passages: int) -> None:
    """Refuse GPUs with less memory than PLAID's index of these passages takes.

    Raises:
        UserError: naming a GPU with too little memory.
    """
    need = passages * TOKENS * PLAID_BYTES
    for device in gpus():
        mebibytes = _ask(device, "memory.total")
        if mebibytes and (has := int(mebibytes) << 20) < need:
            raise UserError(
                f"building PLAID's index of {passages:,} passages takes about {need / 1e9:,.0f} GB of a GPU's memory, "
                f"and GPU {device} has {has / 1e9:,.0f}; set the engine to exact, or search fewer passages"
            )


def _names_gpu(name: str) -> bool:
    return name.isdecimal() or name.startswith(("GPU-", "MIG-"))


def _capability(device: str) -> tuple[int, int] | None:
    """A GPU's compute capability; from nvidia-smi, as torch would keep memory of the GPU for this process."""
    major, _, minor = _ask(device, "compute_cap").partition(".")
    return (int(major), int(minor)) if minor else None


def _ask(device: str, what: str) -> str:
    """What nvidia-smi says of a GPU, in its units; empty where it says nothing."""
    command = ["nvidia-smi", f"--id={device}", f"--query-gpu={what}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
    return answer if answer.replace(".", "").isdecimal() else ""  # [N/A] in some virtual machines
