"""Stands for a model: reads the question on stdin, answers with one candidate on stdout. Any program that does so will do."""

import json
import sys

WRONG = "def row_norm(x):\n    return x / x.abs().sum(dim=-1, keepdim=True)\n"
RIGHT = "import torch\n\n\ndef row_norm(x):\n    return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)\n"

question = json.load(sys.stdin)["context"]
answers = [
    {"source": WRONG, "hypothesis": "the sum of absolute values is close enough", "risk": "it is another norm"},
    {"source": question["kernel"] + "# the same again\n", "hypothesis": "a comment helps"},
    {"source": RIGHT, "hypothesis": "one call for all rows", "expected_effect": "many times fewer calls"},
]
json.dump(answers[(question["proposal"] - 1) % len(answers)], sys.stdout)
