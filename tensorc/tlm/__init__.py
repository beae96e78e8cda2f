"""The tensor language model: it reads a task and a machine, and writes a schedule.

`sentence` says what is read and written, `model` is the network, `decode` writes, `train` learns.
"""
