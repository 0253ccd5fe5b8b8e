"""A study on a Ray cluster, through Ray Core: the same graph, the same layout, the same bits as on one machine.

executor.py   in the process of the command: starts the driver and follows it
driver.py     the driver, a process of its own: what is to be done, in which order; the store knows all it knows
pool.py       workers of the cluster: who does what, what is tried again, what is given up
worker.py     a worker: prepares the study from its recipe, builds artifacts, answers chunks and stores the parts
shared.py     the folder of the run as all of them see it

Only driver.py and pool.py import Ray.
"""

from roadworthy.cluster.executor import RayExecutor as RayExecutor
