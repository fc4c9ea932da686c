"""Reads an answer of /metrics from stdin with Prometheus's own parser, and writes its families as JSON.

The parser of OpenMetrics is strict, and that of the text is not. So the script also gives the document to the strict
one, which wants another name for counters, and a line at the end."""

import json
import re
import sys

from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client import parser as text


def main():
    document = sys.stdin.buffer.read().decode()
    assert document.endswith("\n"), "the last line has no end"
    open_document = re.sub(r"^(# (?:HELP|TYPE) \S+)_total ", r"\1 ", document, flags=re.MULTILINE) + "# EOF\n"
    strict = list(openmetrics.text_string_to_metric_families(open_document))
    families = list(text.text_string_to_metric_families(document))
    assert [family.name for family in strict] == [family.name for family in families]
    samples = [(sample.name, tuple(sorted(sample.labels.items()))) for family in families for sample in family.samples]
    assert len(samples) == len(set(samples)), "a sample is there twice"
    json.dump([{"name": family.name, "type": family.type, "help": family.documentation,
                "samples": [{"name": sample.name, "labels": sample.labels,
                             # JSON has no NaN.
                             "value": repr(float(sample.value))} for sample in family.samples]}
               for family in families], sys.stdout)


main()
