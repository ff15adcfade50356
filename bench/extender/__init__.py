"""What `bench/sched.py` measures the extender with."""
