"""The files of a model server's cgroup, both versions, for `trees.grow`."""

V2 = """
sys/fs/cgroup/cgroup.controllers: cpuset cpu io memory pids
sys/fs/cgroup/system.slice/cpu.max: max 100000
sys/fs/cgroup/system.slice/cpu.stat: usage_usec 9\\nnr_periods 0\\nnr_throttled 0\\nthrottled_usec 0
sys/fs/cgroup/system.slice/qwen3-omni.service/cgroup.procs: 4711\\n4712
sys/fs/cgroup/system.slice/qwen3-omni.service/cgroup.events: populated 1\\nfrozen 0
sys/fs/cgroup/system.slice/qwen3-omni.service/cpu.max: 50000 100000
sys/fs/cgroup/system.slice/qwen3-omni.service/cpu.max.burst: 20000
sys/fs/cgroup/system.slice/qwen3-omni.service/cpu.weight: 900
sys/fs/cgroup/system.slice/qwen3-omni.service/cpu.stat: usage_usec 2500000\\nuser_usec 2\\nsystem_usec 3\\n\
nr_periods 1000\\nnr_throttled 74\\nthrottled_usec 3250000\\nnr_bursts 0\\nburst_usec 0
"""

V1 = """
sys/fs/cgroup/cpu,cpuacct/system.slice/cpu.cfs_quota_us: -1
sys/fs/cgroup/cpu,cpuacct/system.slice/cpu.cfs_period_us: 100000
sys/fs/cgroup/cpu,cpuacct/system.slice/qwen3-omni.service/cgroup.procs: 4711
sys/fs/cgroup/cpu,cpuacct/system.slice/qwen3-omni.service/cpu.cfs_quota_us: 50000
sys/fs/cgroup/cpu,cpuacct/system.slice/qwen3-omni.service/cpu.cfs_period_us: 100000
sys/fs/cgroup/cpu,cpuacct/system.slice/qwen3-omni.service/cpu.shares: 9216
sys/fs/cgroup/cpu,cpuacct/system.slice/qwen3-omni.service/cpuacct.usage: 2500000000
sys/fs/cgroup/cpu,cpuacct/system.slice/qwen3-omni.service/cpu.stat: nr_periods 1000\\nnr_throttled 74\\n\
throttled_time 3250000000
sys/fs/cgroup/cpu -> cpu,cpuacct
sys/fs/cgroup/cpuacct -> cpu,cpuacct
sys/fs/cgroup/systemd/system.slice/qwen3-omni.service/cgroup.procs: 4711
"""
