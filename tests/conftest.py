"""What all tests share: properties are tried without a clock, as a busy machine stalls for seconds."""

from hypothesis import HealthCheck, settings

settings.register_profile("tpca", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tpca")
