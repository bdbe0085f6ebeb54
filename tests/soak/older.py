"""`python -m tests.soak.older watch …`: `rlship` with the row function of before, as in a process that runs when rlship
is upgraded.
"""

from __future__ import annotations

from rlship.__main__ import main
from tests.pipeline.older import make_older

if __name__ == "__main__":
    make_older()
    main()
