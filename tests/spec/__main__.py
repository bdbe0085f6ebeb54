"""Write what vectors expect: `python -m tests.spec NAME…`, for cases of records and rows whose input is there.

What is written is what the reference makes of the input; the author of a case checks it by eye. A case of records needs
`--about TEXT` the first time.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from tests.spec import decoded, made_rows
from tests.spec.vectors import record_cases, row_cases


def main() -> None:
    """Write the expectations of the named cases."""
    parser = argparse.ArgumentParser(prog="python -m tests.spec", description=__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--about", help="what a new case of records shows, in one line")
    asked = parser.parse_args()
    left = set(asked.names)
    for case in record_cases():
        if case.name in left:
            left.discard(case.name)
            about = asked.about or case.expected()["about"]
            made = {"about": about} | decoded.by_reference(case.data)
            case.expected_at.write_text(shown(made, "lines"), encoding="utf-8")
    for rows in row_cases():
        if rows.name in left:
            left.discard(rows.name)
            rows.expected_at.write_text(shown({"rows": made_rows.by_reference(rows)}, "rows"), encoding="utf-8")
    if left:
        parser.error(f"no such case: {', '.join(sorted(left))}")


def shown(body: dict[str, Any], items: str) -> str:
    """JSON with one line for each of `items` and each other member."""
    members = {name: json.dumps(value, ensure_ascii=False) for name, value in body.items()}
    if body[items]:
        lines = ",\n".join(f"    {json.dumps(item, ensure_ascii=False)}" for item in body[items])
        members[items] = f"[\n{lines}\n  ]"
    return "{\n" + ",\n".join(f'  "{name}": {text}' for name, text in members.items()) + "\n}\n"


if __name__ == "__main__":
    main()
