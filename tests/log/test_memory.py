from headwater.log.memory import MemoryLog


def test_a_memory_log_always_has_room_and_never_grows() -> None:
    log = MemoryLog("9f2c")
    assert (log.log_id, log.has_room, log.size_bytes) == ("9f2c", True, 0)
