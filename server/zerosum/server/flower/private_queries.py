"""Privacy around the queries of other people's ServerApps.

One line of a ServerApp changes::

    grid = PrivateQueries(grid, {"query_results": {"ages": Counts(10)}}, epsilon=0.5, budget=1.0)

and one of its ClientApp (:mod:`zerosum.client.flower.private_mod`). What the ServerApp sends by
``grid.send_and_receive`` is answered by one reply, as of one client that holds everybody's data:
each declared value is the sum over the nodes, with noise, and nothing else of any reply is seen.
"""
