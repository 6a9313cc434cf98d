"""A CPU for vLLM-Omni, through its own hook for platforms from outside. The server's code stays as it is."""


def plugin() -> str:
    return "omni_cpu.cpu.CpuOmniPlatform"
