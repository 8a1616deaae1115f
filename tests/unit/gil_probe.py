"""Run as a script: import modules one after the other and print, as JSON, which of them turn the GIL on.

The arguments are module names. Output: {"offenders": {module: message}, "failed": {module: error}}. An import that
turns the GIL on makes CPython warn once and leaves it on, so the first offender ends the run; the caller runs the
script again without it.
"""

import importlib
import json
import sys
import warnings


def main(names: list[str]) -> None:
    """Import `names` in order, up to the first one that turns the GIL on."""
    offenders: dict[str, str] = {}
    failed: dict[str, str] = {}
    for name in names:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                importlib.import_module(name)
            except Exception as error:
                failed[name] = f"{type(error).__name__}: {error}"
        if sys._is_gil_enabled():  # type: ignore[attr-defined, unused-ignore]
            messages = [str(warning.message) for warning in caught if "GIL" in str(warning.message)]
            offenders[name] = "; ".join(messages) or "no warning was given"
            break
    print(json.dumps({"offenders": offenders, "failed": failed}))


if __name__ == "__main__":
    main(sys.argv[1:])
