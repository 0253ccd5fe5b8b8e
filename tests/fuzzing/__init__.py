"""Fuzzing: every reader of files gets valid files that were spoiled, and must work or say one clear sentence.

law.py          what must hold for every input
mutations.py    bytes, lines and nested values, spoiled
formats.py      Parquet, ONNX, npz and PNG files, changed inside and put together again with right checksums
readers.py      what a reader under test is, and how its inputs are tried
*_readers.py    the readers: data, annotations, studies, answers, networks, runs and reports

`python -m fuzzing` in the folder above (`make fuzz`) tries at least 5,000 inputs per reader, each reader in a process
of its own, and prints a table; tests/test_fuzz.py tries a few of each.
"""
