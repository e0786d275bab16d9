"""The readers of YAML and JSON: each document has a single meaning, or is refused with
its line."""

from workloads.parsing.json_text import parse_json as parse_json
from workloads.parsing.text import ParseError as ParseError
from workloads.parsing.yaml_text import parse_yaml as parse_yaml
