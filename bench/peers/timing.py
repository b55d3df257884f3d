"""Times work on the GPU as `coda bench` does: graph replay, L2 flushed before each, candidates in turn, medians."""

import statistics
import time

import torch

FLUSH_BYTES = 256 << 20  # several times the L2 cache
HOST_CALLS = 100  # fewer than the driver's queue holds
WARM_UP_MS = 400  # until the chip's clock is that of sustained work: see coda/cli/sm90/meter.h


def flush_buffer() -> torch.Tensor:
    return torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")


class Candidate:
    """A CUDA graph: fill a buffer larger than the L2 cache, then `run()` between two event records.

    `outputs` is what `run` returned while it was captured: every replay writes it again.
    """

    def __init__(self, name: str, run, flush: torch.Tensor):
        self.name, self.times = name, []
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # compiles, tunes and allocates what a capture must not
            for _ in range(3):
                run()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self.begin, self.end = (torch.cuda.Event(enable_timing=True, external=True) for _ in range(2))
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            flush.fill_(1)
            self.begin.record()
            self.outputs = run()
            self.end.record()

    def replay(self) -> float:
        """Milliseconds of one replay."""
        self.graph.replay()
        torch.cuda.synchronize()
        return self.begin.elapsed_time(self.end)

    def median(self) -> float:
        return statistics.median(self.times)


def interleave(candidates: list[Candidate], rounds: int = 30) -> None:
    """Replays all in turn (A B C A B C ...), since the chip's clock follows its power: for WARM_UP_MS, then `rounds`
    times, which count. Only figures of one run compare."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < WARM_UP_MS / 1000:
        for candidate in candidates:
            candidate.replay()
    for _ in range(rounds):
        for candidate in candidates:
            candidate.times.append(candidate.replay())


def host_us(run) -> float:
    """Microseconds that the caller of `run` waits, shape seen: the median batch of calls that nobody waits for."""
    batches = []
    for _ in range(5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(HOST_CALLS):
            run()
        batches.append((time.perf_counter() - begin) / HOST_CALLS * 1e6)
    torch.cuda.synchronize()
    return statistics.median(batches)
