"""vLLM-Omni's model runners and workers on top of vLLM's own for a CPU."""

from __future__ import annotations

import torch
from vllm.v1.worker.cpu_model_runner import CPUModelRunner
from vllm.v1.worker.cpu_worker import CPUWorker
from vllm_omni.worker.gpu_ar_model_runner import GPUARModelRunner
from vllm_omni.worker.gpu_generation_model_runner import GPUGenerationModelRunner
from vllm_omni.worker.mixins import OmniWorkerMixin


class Event:
    """A CUDA event of work that was done when it was asked for."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def record(self, *args: object) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def wait(self, *args: object) -> None:
        pass

    def query(self) -> bool:
        return True


class CudaEvent(Event):
    """The same under another name: Dynamo refuses two of torch's names for one class or function."""


class Stream:
    """A CUDA stream on which everything is done at once."""

    device = torch.device("cpu")

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> bool:
        return False

    def wait_stream(self, *args: object) -> None:
        pass

    def wait_event(self, *args: object) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def record_event(self, *args: object) -> Event:
        return Event()


def replace_cuda() -> None:
    """Answer the few names of torch.cuda that the runners use without asking which platform they are on."""
    the_stream = Stream()
    torch.Event = Event
    torch.cuda.Event = CudaEvent
    torch.cuda.Stream = Stream
    torch.cuda.current_stream = lambda *args, **kwargs: the_stream
    torch.cuda.default_stream = lambda *args, **kwargs: the_stream
    torch.cuda.stream = lambda stream: the_stream
    torch.cuda.set_device = lambda *args, **kwargs: None
    torch.cuda.synchronize = lambda *args, **kwargs: None


class OnCpu:
    """Goes before a runner of vLLM-Omni's."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        replace_cuda()
        super().__init__(*args, **kwargs)
        if self.compilation_config.max_cudagraph_capture_size is None:
            self.compilation_config.max_cudagraph_capture_size = 0


class AutoregressiveRunner(OnCpu, GPUARModelRunner, CPUModelRunner):
    pass


class GenerationRunner(OnCpu, GPUGenerationModelRunner, CPUModelRunner):
    pass


class AutoregressiveWorker(OmniWorkerMixin, CPUWorker):
    model_runner_cls = AutoregressiveRunner

    def init_device(self) -> None:
        super().init_device()
        self.use_v2_model_runner = False
        self.model_runner = self.model_runner_cls(self.vllm_config, self.device)


class GenerationWorker(AutoregressiveWorker):
    model_runner_cls = GenerationRunner
