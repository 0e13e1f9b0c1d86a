import os

from hypothesis import settings

# The first call of a compiled loop takes a second; a run of CI tries the same examples each time.
settings.register_profile("fedfv", deadline=None, derandomize=os.environ.get("CI") == "true")
settings.load_profile("fedfv")
