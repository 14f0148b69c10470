"""python3 -m reports.claims RECORDS...: the verdicts on the claims of bench/suite/claims.json, as text or as JSON."""
import argparse
import json
import sys

from reports.claims.data import BASES, load_claims, load_suite
from reports.claims.verdict import range_text, settle
from reports.schema import ReportError
from reports.load import load


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m reports.claims", description="Settles the claims of bench/suite/claims.json "
                                     "by the records of `suite --suite claims` (docs/claims.md).")
    parser.add_argument("records", nargs="+", metavar="RECORDS", help="JSON Lines files that the suite wrote")
    parser.add_argument("--json", action="store_true", help="print one JSON object per claim")
    options = parser.parse_args()
    try:
        commands = load_suite()
        settled = settle(load_claims(commands=commands), load(options.records), commands)
        if not settled:
            raise ReportError("no record was made by a command of bench/suite/claims.suite; run: suite --suite claims")
    except ReportError as error:
        print(f"reports.claims: {error}", file=sys.stderr)
        return 2
    for claim in settled:
        values = {basis: "; ".join(range_text(answer) for answer in claim.of(basis)) for basis in BASES}
        if options.json:
            print(json.dumps({"claim": claim.claim.name, "verdict": claim.verdict, "condition": claim.condition, "others": claim.others,
                              **values}, ensure_ascii=False))
        else:
            details = "".join(f"\n    {text}" for text in (claim.condition, *claim.others) if text)
            print(f"{claim.verdict:18} {claim.claim.claim}{details}")
    return 0


sys.exit(main())
