"""Real clients against a served directory: how they are installed, what is served, what was tested.

The programs of other languages are in folders of their own (`java`, `node`, `go`), each with the
file that pins its packages; `introspection` has statements as tools send them.
"""
