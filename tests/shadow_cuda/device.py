"""Put the shadow device in the place of CUDA: what ``torch.cuda`` answers, for this whole process.

A process that has installed it cannot go back; run what needs it in a process of its own.

The tests run on another device if ``SHADOW_CUDA`` names an importable module with an :func:`install` like this one, and
:func:`compiled` if something has to be built. They ask that tensors have the device ``cuda:N``; that CUDA's autocast
and dispatch hold; that devices do not mix; and that ``torch.cuda`` answers as here, its memory (``memory_allocated``,
``max_memory_allocated``, ``reset_peak_memory_stats``, ``set_per_process_memory_fraction``), random states and
capability above all. ``test_the_device_keeps_its_promises`` asks for these first.
"""

import os
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

SOURCE = Path(__file__).with_name("shadow.cpp")


def compiled(folder: Path) -> ModuleType:
    """The device, compiled into ``folder`` unless it is there (half a minute)."""
    from torch.utils.cpp_extension import load

    folder.mkdir(parents=True, exist_ok=True)
    return load("shadow_cuda", [str(SOURCE)], extra_cflags=["-O1", "-w"], build_directory=str(folder), with_cuda=False)


def install(folder: Path, devices: int = 1, capability: tuple[int, int] = (9, 0), memory: int = 1 << 40) -> None:
    """Take the place of CUDA.

    Args:
        folder: of :func:`compiled`.
        devices: how many there are.
        capability: of each: bfloat16 from (8, 0) on.
        memory: bytes of each, after which ``torch.OutOfMemoryError`` is raised.
    """
    import torch

    device = compiled(folder)
    device.install(devices)
    for number in range(devices):
        device.limit_memory(number, memory)
        device.seed(number, torch.initial_seed() % 2**63)
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(devices))))

    def index(chosen: Any = None) -> int:
        if chosen is None:
            return int(device.current_device())
        if isinstance(chosen, int):
            return chosen
        number = torch.device(chosen).index
        return int(device.current_device()) if number is None else number

    def free(chosen: Any = None) -> tuple[int, int]:
        limit = device.memory_limit(index(chosen))
        return limit - device.memory_used(index(chosen)), limit

    properties = SimpleNamespace(
        name="Shadow", major=capability[0], minor=capability[1], total_memory=memory, multi_processor_count=1,
        warp_size=32, is_integrated=False, uuid="shadow", gcnArchName="",
    )  # fmt: skip
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "_is_compiled": lambda: True,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "device_count": lambda: devices,
        "current_device": lambda: int(device.current_device()),
        "set_device": lambda chosen: device.set_device(index(chosen)),
        "get_device_name": lambda chosen=None: "Shadow",
        "get_device_capability": lambda chosen=None: capability,
        "get_device_properties": lambda chosen=None: properties,
        "get_arch_list": lambda: ["sm_75", "sm_80", "sm_90"],
        "is_bf16_supported": lambda including_emulation=True: capability >= (8, 0),
        "synchronize": lambda chosen=None: None,
        "empty_cache": lambda: None,
        "ipc_collect": lambda: None,
        "mem_get_info": free,
        "memory_allocated": lambda chosen=None: device.memory_used(index(chosen)),
        "memory_reserved": lambda chosen=None: device.memory_used(index(chosen)),
        "max_memory_allocated": lambda chosen=None: device.memory_peak(index(chosen)),
        "max_memory_reserved": lambda chosen=None: device.memory_peak(index(chosen)),
        "set_per_process_memory_fraction": lambda share, chosen=None: device.limit_memory(
            index(chosen), round(share * memory)
        ),
        "reset_peak_memory_stats": lambda chosen=None: device.reset_peak(index(chosen)),
        "manual_seed": lambda seed: device.seed(index(), seed % 2**63),
        "manual_seed_all": lambda seed: [device.seed(number, seed % 2**63) for number in range(devices)],
        "get_rng_state": lambda chosen="cuda": device.random_state(index(chosen)),
        "set_rng_state": lambda state, chosen="cuda": device.set_random_state(index(chosen), state.cpu()),
        "current_stream": lambda chosen=None: SimpleNamespace(synchronize=lambda: None, wait_stream=lambda _: None),
        "is_current_stream_capturing": lambda: False,
    }
    answers["get_rng_state_all"] = lambda: [device.random_state(number) for number in range(devices)]
    answers["set_rng_state_all"] = lambda states: [
        device.set_random_state(number, state.cpu()) for number, state in enumerate(states)
    ]
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
        for module in (torch.cuda.memory, torch.cuda.random):
            if hasattr(module, name):
                setattr(module, name, answer)
    torch.cuda.default_generators = ()
    torch._C._cuda_getDevice = answers["current_device"]
    torch._C._cuda_setDevice = device.set_device
    torch._C._cuda_exchangeDevice = torch._C._cuda_maybeExchangeDevice = lambda chosen: _exchanged(device, chosen)
    torch.cuda._exchange_device = torch.cuda._maybe_exchange_device = torch._C._cuda_exchangeDevice
    for kernel in ("flash", "mem_efficient", "cudnn"):
        getattr(torch.backends.cuda, f"enable_{kernel}_sdp")(False)
    torch.storage._to = torch._utils._to = _storage_to
    torch.Tensor.pin_memory = lambda self, *_: self
    torch.Tensor.is_pinned = lambda self, *_: False


def _exchanged(device: ModuleType, chosen: int) -> int:
    before = int(device.current_device())
    if chosen >= 0:
        device.set_device(chosen)
    return before


def _storage_to(storage: Any, device: Any, non_blocking: bool = False) -> Any:
    """As ``torch._utils._to``, which asks CUDA's own allocator."""
    import torch

    if storage.device == torch.device(device):
        return storage
    of_bytes = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    return of_bytes.to(device).untyped_storage()
