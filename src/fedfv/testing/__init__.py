"""The laws that rules, tasks, partitions and samplers must keep, to check those of your own in your own tests.

>>> from fedfv import FedAvg
>>> check_aggregator(FedAvg(), degree=1)
"""

from fedfv.testing._aggregators import check_aggregator
from fedfv.testing._data import check_partition
from fedfv.testing._law import BrokenLawError
from fedfv.testing._sampling import check_sampler
from fedfv.testing._tasks import check_task

__all__ = ["BrokenLawError", "check_aggregator", "check_partition", "check_sampler", "check_task"]
