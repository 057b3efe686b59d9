"""Where work runs: this machine, or a Ray cluster; the store of what is done.

Imports with numpy alone; torch is loaded by the worker that trains. `python -m elsewhere.engine` works on a
bare GPU machine.
"""
