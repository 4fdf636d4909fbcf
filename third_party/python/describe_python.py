"""Prints the facts about this interpreter for python_configure, as JSON."""

import json
import sys

OLDEST, NEWEST = (3, 10), (3, 13)

version = sys.version_info[:2]
if not OLDEST <= version <= NEWEST:
    answer = {
        "error": f"{sys.executable} is Python {version[0]}.{version[1]}; TensorFlow 2.21 needs 3.{OLDEST[1]} to "
        f"3.{NEWEST[1]}."
    }
else:
    answer = {"version": f"{version[0]}.{version[1]}", "watch": [sys.executable]}
print(json.dumps(answer, ensure_ascii=False))
