"""One thread, and property tests that draw the same examples on every machine."""

import torch
from hypothesis import settings

torch.set_num_threads(1)

settings.register_profile("ecrt", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("ecrt")
