"""How much memory is left, as the system tells it."""

from rekindle.lab.runs.engines.memory import available_memory


def test_available_memory(tmp_path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 100 kB\nMemAvailable:   50 kB\n")
    assert available_memory(meminfo, tmp_path / "none") == 50 * 1024
    group = tmp_path / "group"
    group.mkdir()
    for name, text in {
        "memory.max": "40000",
        "memory.current": "30000",
        "memory.stat": "anon 1\ninactive_file 500",
    }.items():
        (group / name).write_text(text)
    assert available_memory(meminfo, group) == 10500
    (group / "memory.max").write_text("max\n")
    assert available_memory(meminfo, group) == 50 * 1024
    assert available_memory(tmp_path / "none", tmp_path / "none") == float("inf")
