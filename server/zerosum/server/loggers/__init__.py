"""Write a run's public figures where other tools read them, a process for each.

A library of others' draws from global generators, starts threads, catches signals, waits for
networks, and looks at the process that it is in: its arguments, its output, its machine. In a
process of its own, which is told public figures and nothing else, none of that reaches a run, and
nothing of a run reaches it.
"""
