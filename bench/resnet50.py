"""ResNet-50 at batch 1 against torch eager, and its subgraphs against their rooflines.

    python -m bench.resnet50                         the tables
    python -m bench.resnet50 --json resnet50.json    the same figures as data
    python -m bench.resnet50 --threads 1             on one thread; all cores by default

A subgraph's roofline is the larger of its operations over the peak of multiply-adds and its bytes
over the bandwidth of a triad, both measured in the same run on as many threads. Weights that come
from a cache larger than the triad's arrays can beat the latter.
"""

from __future__ import annotations

import json
import sys
import warnings

from bench.compare import heading
from bench.harness import arguments

# isort: split
from tensorc import config
from tensorc.cli.run import run_network
from tensorc.cli.subject import subject

NETWORK = "resnet50"


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--threads", type=int, default=config.num_threads)
    options = parser.parse_args()
    # torch.export uses what torch deprecates.
    warnings.filterwarnings("ignore", message=".*LeafSpec.* is deprecated", category=FutureWarning)
    say = lambda text: print(f"# {text}", file=sys.stderr)  # noqa: E731
    found = run_network(subject(NETWORK), ["torch"], options.threads, say, options.repeats)
    head = heading(threads=options.threads)
    print(head, found.profile, found.summary(), sep="\n")
    if options.json:
        record = {"machine": head, **found.as_dict()}
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
