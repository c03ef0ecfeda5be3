"""The shop depends on nothing but its seed and the time."""

import math

import pytest

from lakerunner.demo.shop import BURST_DECAY_S, DEPLOY_PERIOD_S, ROLLOUT_S, SERVICES, Shop
from lakerunner.model.errors import BadInput
from lakerunner.model.time import NS_PER_HOUR, NS_PER_S
from tests.demo.requests import START_NS

START_S = START_NS // NS_PER_S


def test_the_day_has_a_rhythm_whose_mean_is_one():
    shop = Shop(1, 100.0)
    minutes = [shop.busyness(minute * 60 * NS_PER_S) for minute in range(24 * 60)]
    assert math.isclose(sum(minutes) / len(minutes), 1.0, rel_tol=0.01)
    assert shop.busyness(16 * NS_PER_HOUR) > 3 * shop.busyness(4 * NS_PER_HOUR)


def test_a_deploy_changes_the_version_pod_by_pod():
    shop = Shop(1, 2_000.0)
    service = 2
    release = shop.release(service, 0, START_S) + 1
    deploy_s = shop.deploy_s(service, release)
    last = shop.pods - 1
    assert shop.release(service, 0, deploy_s) == release
    assert shop.release(service, last, deploy_s) == release - 1
    assert shop.release(service, last, deploy_s + ROLLOUT_S) == release
    assert shop.version(service, release) != shop.version(service, release - 1)
    assert shop.release(service, 0, deploy_s + DEPLOY_PERIOD_S) == release + 1


def test_trouble_follows_a_deploy_and_fades():
    shop = Shop(1, 100.0)
    deploy_s = shop.deploy_s(0, shop.release(0, 0, START_S))
    assert shop.release_failure_share(0, deploy_s) >= 0.03
    assert shop.release_failure_share(0, deploy_s + 5 * BURST_DECAY_S) < 0.01 * 0.3
    assert shop.release_failure_share(0, deploy_s - 1) < shop.release_failure_share(0, deploy_s) / 100


@pytest.mark.parametrize("service", range(len(SERVICES)), ids=[service.name for service in SERVICES])
def test_a_process_has_begun_before_now_and_not_before_its_release(service):
    shop = Shop(5, 100.0)
    for pod in range(shop.pods):
        for time_s in range(START_S, START_S + 5 * 3_600, 601):
            started_s = shop.started_s(service, pod, time_s)
            assert shop.deploy_s(service, shop.release(service, pod, time_s)) <= started_s <= time_s


def test_stateful_pods_keep_their_names():
    shop = Shop(1, 100.0)
    for at, service in enumerate(SERVICES):
        assert (shop.pod_name(at, 1, 10) == shop.pod_name(at, 1, 11)) == service.stateful


def test_more_load_means_more_pods_up_to_a_bound():
    assert Shop(1, 1.0).pods == 3
    assert Shop(1, 1.0).pods < Shop(1, 5_000.0).pods < Shop(1, 1e9).pods == Shop(1, 1e10).pods


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_a_rate_that_makes_no_sense_is_refused(rate):
    with pytest.raises(BadInput, match="cannot simulate"):
        Shop(1, rate)


def test_a_negative_seed_is_refused():
    with pytest.raises(BadInput, match="cannot use the seed"):
        Shop(-1, 10.0)
