"""Reads an answer of /metrics from stdin with Prometheus's own parser, and writes its families as JSON.

The argument is the form: `text` or `openmetrics`. The parser of OpenMetrics is strict. That of the text is not, so
this script checks some rules itself."""

import json
import sys

from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client import parser as text


def check_text(document):
    seen = set()
    for line in document.splitlines():
        if line.startswith("# TYPE "):
            name = line.split(" ")[2]
            assert name not in seen, f"two families are called {name}"
            seen.add(name)
    assert document.endswith("\n"), "the last line has no end"


def main():
    document = sys.stdin.buffer.read().decode()
    if sys.argv[1] == "openmetrics":
        families = list(openmetrics.text_string_to_metric_families(document))
    else:
        check_text(document)
        families = list(text.text_string_to_metric_families(document))
    samples = [(sample.name, tuple(sorted(sample.labels.items()))) for family in families for sample in family.samples]
    assert len(samples) == len(set(samples)), "a sample is there twice"
    json.dump([{"name": family.name, "type": family.type, "help": family.documentation,
                "samples": [{"name": sample.name, "labels": sample.labels,
                             # JSON has no NaN.
                             "value": repr(float(sample.value))} for sample in family.samples]}
               for family in families], sys.stdout)


main()
