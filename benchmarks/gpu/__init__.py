"""Speed on one GPU, against a bare loop of the same model in the same run: see docs/gpu.md.

Each script needs torch and transformers beside hopforge's own requirements, no network and no weights (they are drawn
from a configuration), and a few minutes on a card; ``--dry-run`` takes a tiny model and runs on a CPU.
"""
