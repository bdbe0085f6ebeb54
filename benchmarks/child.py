"""`python -m benchmarks.child MODULE FUNCTION JSON`: calls the function and prints the results that it returns, as
JSON.
"""

from __future__ import annotations

import importlib
import json
import sys

if __name__ == "__main__":
    module, function, arguments = sys.argv[1:]
    found = getattr(importlib.import_module(module), function)(**json.loads(arguments))
    sys.stdout.write("\n" + json.dumps(found) + "\n")
