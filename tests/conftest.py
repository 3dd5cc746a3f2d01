"""What all tests share: properties are tried without a deadline, as a busy machine stalls for seconds."""

from hypothesis import settings

settings.register_profile("tpca", deadline=None)
settings.load_profile("tpca")
