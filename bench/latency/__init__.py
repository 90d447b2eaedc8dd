"""The latency benchmark: the same jobs over local files, memfs, mounts, copies and clients of one object store.

store.py    the corpora and the store behind its proxy
ways.py     how files are reached: one class a kind
jobs.py     what is done with them, timed, and checked against the local folder
report.py   JSON to Markdown
plots.py    JSON to pictures
__main__    which jobs, ways, round trips and sizes; trials in turn
"""
