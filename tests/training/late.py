"""Processes that fail together once; when they are started again, the first one comes late."""

import os
import time

import torch.distributed

again = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if again and os.environ["RANK"] == "0":
    time.sleep(2)
torch.distributed.init_process_group("gloo")
torch.distributed.barrier()
if not again:
    os._exit(1)
