"""Networks: import, operators, passes, memory plan and the executor.

From top to bottom: `compile` is the entry; `torch_export` reads a network into the graph IR of
`graph`, whose operators `ops` and its families define as tensor expressions; `passes` rewrite and
fuse it; `lower` and `collapse` make a program of each group, `tasks` finds the equal ones;
`kernels` schedules and compiles them; `plan` places values in memory and `executor` runs the calls.
"""
