"""What is logged of two looks at an endpoint, from literal expositions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client import generate_latest as plain_text
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_text

from rlship_agents.scrape.figures import OF_ENDPOINT, observe
from rlship_agents.scrape.increases import remember
from rlship_agents.scrape.look import look
from rlship_agents.scrape.names import Choice
from rlship_agents.scrape.reading import Engine, Reading
from tests.scrape.pages import Page

E0, E1 = Engine((), "0"), Engine((), "1")
DEFAULT = Choice()


def seen(page: Page | str, choice: Choice = DEFAULT) -> Reading:
    return look(page if isinstance(page, str) else page.text(), choice)


def values(
    before: Page | str | None,
    now: Page | str,
    engine: Engine = E0,
    choice: Choice = DEFAULT,
    keep: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The figures of an engine by metric."""
    last = None if before is None else seen(before, choice)
    return {name: figure.value for name, figure in observe(last, seen(now, choice), keep).engines[engine].items()}


@pytest.mark.parametrize("openmetrics", [False, True])
def test_what_the_client_library_writes(openmetrics: bool) -> None:
    """Pages of the library that vLLM and SGLang use, in both formats and with creation times, are understood."""
    registry = CollectorRegistry()
    labels = ["engine", "model_name"]
    tokens = Counter("vllm:generation_tokens", "Tokens.", labels, registry=registry).labels("0", "acme/tiny-1b")
    running = Gauge("vllm:num_requests_running", "Requests.", labels, registry=registry).labels("0", "acme/tiny-1b")
    first = Histogram("vllm:time_to_first_token_seconds", "TTFT.", labels, buckets=(0.1, 0.5), registry=registry)
    iteration = Histogram("vllm:iteration_tokens_total", "Tokens.", labels, registry=registry)

    def page() -> Reading:
        text = openmetrics_text(registry, escaping="allow-utf-8") if openmetrics else plain_text(registry)
        return look(text.decode(), DEFAULT, openmetrics=openmetrics)

    running.set(3)
    tokens.inc(7)
    before = page()
    tokens.inc(5)
    for seconds in (0.2, 0.3, 9.0):
        first.labels("0", "acme/tiny-1b").observe(seconds)
    iteration.labels("0", "acme/tiny-1b").observe(100)
    observed = observe(before, page())
    buckets = {"v": [0.1, 0.5, 0.5000000000000001], "w": [0.0, 2.0, 1.0]}
    assert {name: figure.value for name, figure in observed.engines[E0].items()} == {
        "gen/requests_running": 3.0,
        "gen/decode_tokens_per_s": 5.0,
        "gen/ttft_s": buckets,
        "gen/ttft_s/p99": buckets,
    }
    assert observed.restarts == 0


def test_a_first_look_gives_gauges_only() -> None:
    """What a counter or histogram stood at says nothing of now."""
    page = Page(5.0).engine(0, generation_tokens=9, num_requests_running=2.0, time_to_first_token_seconds={"+Inf": 3})
    assert values(None, page) == {"gen/requests_running": 2.0}


def test_counters_and_histograms_are_increases() -> None:
    """The second look logs how many more there are; each bucket with nonzero increase, and the bound below it."""
    buckets = ("0.1", "0.5", "1.0", "+Inf")
    before = Page().engine(0, generation_tokens=9, time_to_first_token_seconds=dict(zip(buckets, (1, 2, 3, 4))))
    now = Page().engine(0, generation_tokens=19, time_to_first_token_seconds=dict(zip(buckets, (3, 2, 8, 5))))
    told = {"v": [0.1, 0.5, 1.0, 1.0000000000000002], "w": [2.0, 0.0, 5.0, 1.0]}
    assert values(before, now) == {
        "gen/decode_tokens_per_s": 10.0,
        "gen/ttft_s": told,
        "gen/ttft_s/p99": told,
    }


def test_how_they_are_reduced() -> None:
    """Counters are rates, histograms quantiles of buckets, what is to be added up over engines a sum of levels."""
    before = Page().engine(0, generation_tokens=9, inter_token_latency_seconds={"1.0": 1, "+Inf": 0})
    now = Page().engine(0, generation_tokens=9, inter_token_latency_seconds={"1.0": 2, "+Inf": 0})
    now.engine(0, num_requests_waiting=1.0, kv_cache_usage_perc=0.5)
    figures = observe(seen(before), seen(now)).engines[E0]
    assert {name: (one.reduce, one.unit, one.level) for name, one in figures.items()} == {
        "gen/decode_tokens_per_s": (("rate",), "tokens/s", False),
        "gen/tpot_s": (("buckets.p50",), "s", False),
        "gen/tpot_s/p99": (("buckets.p99",), "s", False),
        "gen/requests_waiting": (("gauge.sum", "max"), "count", True),
        "gen/kv_usage": (("max", "mean"), "0-1", False),
    }


def test_ratios_weigh_what_they_are_of() -> None:
    """Misses over queries with the queries as weight, requests cut or given up over all requests; nothing over nothing
    is nothing.
    """
    before, now = Page(), Page()
    for page, done in ((before, 0), (now, 1)):
        page.engine(0, prefix_cache_queries=100 + 200 * done, prefix_cache_hits=50 + 50 * done)
        page.engine(1, prefix_cache_queries=7, prefix_cache_hits=7)
        page.engine(0, spec_decode_num_drafts=10 * done, spec_decode_num_accepted_tokens=25 * done)
        for reason, count in (("stop", 6), ("length", 3), ("abort", 1)):
            page.counter("vllm:request_success", count * done, engine="0", finished_reason=reason)
    assert values(before, now) == {
        "gen/kv_miss_rate": {"v": [0.75], "w": [200.0]},
        "gen/spec_accept_len": {"v": [3.5], "w": [10.0]},
        "data/clip_ratio": {"v": [0.3], "w": [10.0]},
        "data/aborted_ratio": {"v": [0.1], "w": [10.0]},
        "perf/samples_per_s": 10.0,
    }
    assert E1 not in observe(seen(before), seen(now)).engines


def test_sleeping_engines_are_masked() -> None:
    """The gauges of an engine that sleeps are of before it fell asleep; what it did until then counts."""

    def page(asleep: bool, tokens: int) -> Page:
        made = Page()
        for number, sleeps in ((0, asleep), (1, False)):
            made.engine(number, kv_cache_usage_perc=0.7, num_requests_running=3.0, generation_tokens=tokens)
            for state, on in (("awake", not sleeps), ("weights_offloaded", sleeps), ("discard_all", False)):
                made.gauge("vllm:engine_sleep_state", float(on), engine=str(number), sleep_state=state)
        return made

    assert values(page(False, 5), page(True, 9)) == {"gen/asleep": 1.0, "gen/decode_tokens_per_s": 4.0}
    assert values(page(False, 5), page(True, 9), E1) == {
        "gen/asleep": 0.0,
        "gen/kv_usage": 0.7,
        "gen/requests_running": 3.0,
        "gen/decode_tokens_per_s": 4.0,
    }


def test_waiting_requests_are_counted_once() -> None:
    """The reasons add up to all that wait: they are used only where that is not told."""
    reasons = Page()
    for reason, count in (("capacity", 9.0), ("deferred", 3.0)):
        reasons.gauge("vllm:num_requests_waiting_by_reason", count, engine="0", reason=reason)
    assert values(None, reasons) == {"gen/requests_waiting": 12.0}
    both = reasons.engine(0, num_requests_waiting=12.0)
    assert values(None, both) == {"gen/requests_waiting": 12.0}
    assert values(None, both, OF_ENDPOINT) == {"svc/replica_queue_depth": 12.0}


def test_capacity_is_in_labels() -> None:
    """Tokens that fit into the KV cache: told as such, or blocks times their size; text is no number."""
    config = {"engine": "0", "block_size": "16", "num_gpu_blocks": "100", "sliding_window": "None"}
    assert values(None, Page().gauge("vllm:cache_config_info", 1.0, **config)) == {"gen/kv_capacity": 1600.0}
    page = Page().gauge("vllm:cache_config_info", 1.0, **config, kv_cache_size_tokens="1500")
    assert values(None, page) == {"gen/kv_capacity": 1500.0}
    page = Page().gauge("vllm:cache_config_info", 1.0, **{**config, "num_gpu_blocks": "None"})
    assert E0 not in observe(None, seen(page)).engines


def test_sglang_shards_are_one_engine() -> None:
    """Each tensor-parallel rank tells the same: the lowest one counts. Data-parallel ranks are engines."""
    before, now = Page(), Page()
    for page, tokens in ((before, 10), (now, 40)):
        for dp in ("0", "1"):
            for tp in ("0", "1"):
                labels = {"dp_rank": dp, "tp_rank": tp, "pp_rank": "0", "engine_type": "unified"}
                page.gauge("sglang:num_running_reqs", 4.0, **labels)
                page.counter("sglang:generation_tokens", tokens, **labels)
                page.gauge("sglang:cache_hit_rate", 0.25, **labels)
                page.gauge("sglang:fwd_occupancy", "NaN", **labels)
    expected = {"gen/requests_running": 4.0, "gen/decode_tokens_per_s": 30.0, "gen/kv_miss_rate": 0.75}
    assert values(before, now) == values(before, now, E1) == expected


def test_sglang_cached_tokens_are_better_than_its_hit_rate() -> None:
    """Where the tokens are counted, the miss rate is of them, added up over where they were cached."""
    before, now = Page(), Page()
    for page, tokens in ((before, 0), (now, 1)):
        page.counter("sglang:prompt_tokens", 100 * tokens)
        page.counter("sglang:cached_tokens", 30 * tokens, cache_source="device")
        page.counter("sglang:cached_tokens", 20 * tokens, cache_source="host")
        page.gauge("sglang:cache_hit_rate", 0.9)
    assert values(before, now, OF_ENDPOINT) == {
        "gen/prefill_tokens_per_s": 100.0,
        "gen/kv_miss_rate": {"v": [0.5], "w": [100.0]},
    }


def test_vllm_through_ray() -> None:
    """Names with Ray's prefix are vLLM's; a counter that stands there bare and as `_total` counts once; replicas on one
    node are engines of their own.
    """
    before, now = "", ""
    for tokens in (100, 400):
        text = ""
        for name, kind in (("ray_vllm_generation_tokens", "gauge"), ("ray_vllm_generation_tokens_total", "counter")):
            text += f"# TYPE {name} {kind}\n"
            text += "".join(f'{name}{{ReplicaId="{replica}",engine="0"}} {tokens}\n' for replica in "ab")
        before, now = now, text
    for replica in "ab":
        assert values(before, now, Engine((f"ReplicaId={replica}",), "0")) == {"gen/decode_tokens_per_s": 300.0}


def test_units_are_the_catalogues() -> None:
    """Ray's percent and MiB become a share and bytes, one observation for each GPU."""
    page = Page()
    for index, percent in (("0", 50.0), ("1", 100.0)):
        page.gauge("ray_node_gpus_utilization", percent, GpuIndex=index)
        page.gauge("ray_node_gram_used", 2.0, GpuIndex=index)
    assert values(None, page, OF_ENDPOINT) == {"node/gpu_util": [0.5, 1.0], "node/gpu_mem": [2097152.0, 2097152.0]}


def test_other_names_are_folded_over_labels() -> None:
    """Any other exporter goes by its own names: gauges as observations, counters added up, histograms as mean and
    quantiles, and a metric for each value of a label that is kept; `_created` and what a runtime says of itself are not
    logged.
    """

    def page(count: int) -> Page:
        made = Page(1.0).gauge("python_info", 1.0, version="3").gauge("room_celsius", 20.0, room="a/b")
        made.gauge("room_celsius", 22.0, room="c").gauge("room_celsius", "+Inf", room="d")
        for method in ("GET", "PUT"):
            made.counter("http_requests", count, created=7.0, method=method)
        return made.histogram("job_seconds", {"1.0": count, "+Inf": 0}, total=0.5 * count)

    buckets = {"v": [1.0], "w": [4.0]}
    shared = {
        "job_seconds": {"n": 4, "sum": 2.0},
        "job_seconds/p50": buckets,
        "job_seconds/p99": buckets,
    }
    assert values(page(1), page(5), OF_ENDPOINT) == {
        "room_celsius": [20.0, 22.0],
        "http_requests_total": 8.0,
        **shared,
    }
    assert values(page(1), page(5), OF_ENDPOINT, keep=("method", "room")) == {
        "room_celsius/a_b": 20.0,
        "room_celsius/c": 22.0,
        "http_requests_total/GET": 4.0,
        "http_requests_total/PUT": 4.0,
        **shared,
    }


def test_what_is_included() -> None:
    """An inference server's other families are logged only if a pattern asks for them; what is excluded never is."""
    page = Page().engine(0, num_requests_running=1.0, lora_slots=2.0).gauge("http_open", 3.0)
    assert values(None, page, OF_ENDPOINT) == {}
    asked = values(None, page, OF_ENDPOINT, Choice(("vllm:lora_*", "http_*")))
    assert asked == {"vllm:lora_slots": 2.0, "http_open": 3.0}
    assert values(None, page, OF_ENDPOINT, Choice(("*",), ("http_*",))) == {"vllm:lora_slots": 2.0}


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (Page(100.0).engine(0, generation_tokens=5), Page(200.0).engine(0, generation_tokens=9)),
        (
            Page().counter("vllm:generation_tokens", 5, created=100.0, engine="0"),
            Page().counter("vllm:generation_tokens", 9, created=200.0, engine="0"),
        ),
        (
            Page().engine(0, generation_tokens=5, prompt_tokens=5),
            Page().engine(0, generation_tokens=9, prompt_tokens=4),
        ),
        (
            Page().engine(0, generation_tokens=5, time_to_first_token_seconds={"1.0": 5, "+Inf": 0}),
            Page().engine(0, generation_tokens=9, time_to_first_token_seconds={"1.0": 1, "+Inf": 4}),
        ),
    ],
    ids=["start time", "created", "another counter", "a bucket"],
)
def test_a_restart_shows_in_one_place(before: Page, now: Page) -> None:
    """That a process began anew may show in its start time, in when a series was made, or in any series that went down:
    nothing is known of the growth of all the others then, and the restart is counted.
    """
    observed = observe(seen(before), seen(now))
    assert observed.restarts == 1
    assert observed.engines == {OF_ENDPOINT: {}}


def test_a_page_may_be_short_of_the_start_time() -> None:
    """The start time that was told last tells a restart, although the counter has outrun what it was."""
    first = Page(start=100).counter("vllm:generation_tokens", 5, engine="0")
    silent = Page().counter("vllm:generation_tokens", 7, engine="0")
    other = Page(start=200).counter("vllm:generation_tokens", 9, engine="0")
    last, now = seen(first), seen(silent)
    assert observe(last, now).restarts == 0
    remember(last, now, 0)
    assert observe(now, seen(other)).restarts == 1


def test_a_restart_is_that_of_one_process() -> None:
    """Of several processes behind one endpoint the others go on."""

    def page(first: int, second: int) -> str:
        series = (("a", first), ("b", second))
        lines = (f'ray_vllm_prompt_tokens_total{{ReplicaId="{name}"}} {count}\n' for name, count in series)
        return "# TYPE ray_vllm_prompt_tokens_total counter\n" + "".join(lines)

    observed = observe(seen(page(10, 10)), seen(page(30, 4)))
    assert observed.restarts == 1
    assert {engine.process for engine, figures in observed.engines.items() if figures} == {("ReplicaId=a",)}


def test_a_gauge_that_is_called_a_counter_stops_no_other() -> None:
    """A series of an unknown name, which goes down, is taken to have begun anew alone."""
    before = Page().counter("odd", 9).counter("even", 1)
    now = Page().counter("odd", 4).counter("even", 3)
    assert values(before, now, OF_ENDPOINT) == {"even_total": 2.0}


def test_new_series() -> None:
    """A series of a known name that appears in a process that was there began at 0; of another one that is not sure."""
    before = Page().counter("vllm:request_success", 5, engine="0", finished_reason="stop").counter("a", 1, x="1")
    now = Page().counter("vllm:request_success", 5, engine="0", finished_reason="stop").counter("a", 1, x="1")
    now.counter("vllm:request_success", 5, engine="0", finished_reason="abort").counter("a", 99, x="2")
    assert values(before, now)["data/aborted_ratio"] == {"v": [1.0], "w": [5.0]}
    assert values(before, now, OF_ENDPOINT, Choice(("*",))) == {"a_total": 0.0}


def tokens(**counts: float) -> Page:
    page = Page()
    for engine, count in counts.items():
        page.counter("vllm:generation_tokens", count, engine=engine[1:])
    return page


@pytest.mark.parametrize(
    ("pages", "logged"),
    [
        ([tokens(e0=10, e1=5000), tokens(e0=20), tokens(e0=30, e1=5100), tokens(e0=40, e1=5200)], 100),
        ([tokens(e0=10, e1=5000), tokens(e0=20), tokens(e0=25), tokens(e0=30, e1=5100), tokens(e0=40, e1=5200)], 100),
        ([tokens(e0=10), tokens(e1=5000), tokens(e0=10, e1=5030)], 30),
        ([tokens(e0=10), tokens(e0=20, e1=7)], 7),
    ],
    ids=["away for a look", "away for two", "called otherwise", "new"],
)
def test_series_that_go_and_come_make_no_peaks(pages: list[Page], logged: float) -> None:
    """What a series stood at when it came back, or came in the place of another one, was not done since the last look;
    of one that was never there before it was.
    """
    last: Reading | None = None
    total = 0.0
    for page in pages:
        now = seen(page)
        observed = observe(last, now)
        assert observed.restarts == 0
        if figure := observed.engines.get(E1, {}).get("gen/decode_tokens_per_s"):
            total += figure.value
        remember(last, now, observed.restarts)
        last = now
    assert total == logged


def test_very_many_series_are_logged_as_what_they_come_to() -> None:
    """A family of thousands of gauges has one short value, of which mean, least and greatest are the same."""
    few, many = Page(), Page()
    for number in range(10_000):
        many.gauge("depth", number / 8, queue=str(number))
    for number in range(3):
        few.gauge("depth", number / 8, queue=str(number))
    assert values(None, few, OF_ENDPOINT) == {"depth": [0.0, 0.125, 0.25]}
    assert values(None, many, OF_ENDPOINT) == {
        "depth": {"n": 10_000, "sum": sum(range(10_000)) / 8, "min": 0.0, "max": 9_999 / 8}
    }


def test_counts_beyond_counting_are_none() -> None:
    """A histogram that holds more than can be counted gives no value, which no reader could use."""
    before, now = Page().histogram("h", {"1": 0, "+Inf": 1}), Page().histogram("h", {"1": 0, "+Inf": 1e300})
    assert values(before, now, OF_ENDPOINT) == {}


def test_damaged_histograms_are_none() -> None:
    """Without the bucket that holds all, with less in a larger one, or with other bounds than before, there is nothing
    to say of a histogram.
    """
    whole = Page().engine(0, time_to_first_token_seconds={"1.0": 1, "+Inf": 0})
    endless = Page().engine(0, time_to_first_token_seconds={"1.0": 5})
    falling = Page().engine(0, time_to_first_token_seconds={"1.0": 5, "2.0": -3, "+Inf": 0})
    other = Page().engine(0, time_to_first_token_seconds={"2.0": 5, "+Inf": 0})
    for now in (endless, falling, other):
        assert not observe(seen(whole), seen(now)).engines.get(E0)


lives = st.lists(st.lists(st.integers(0, 1000), min_size=1, max_size=6), min_size=1, max_size=5)


@given(lives, st.booleans())
def test_increments_are_the_growth_within_lives(grown: list[list[int]], told: bool) -> None:
    """Over any restarts, whose start times are known, what is logged in all is what each process did after it was first
    looked at; where they are not told, it is never less than nothing and never more than all that was done.
    """
    last: Reading | None = None
    total, restarts, begun = 0.0, 0, []
    for life, steps in enumerate(grown):
        count = 0
        for step in steps:
            count += step
            now = seen(Page(1000.0 * life if told else None).engine(0, generation_tokens=count))
            observed = observe(last, now)
            restarts += observed.restarts
            figure = observed.engines.get(E0, {}).get("gen/decode_tokens_per_s")
            assert figure is None or figure.value >= 0
            total += figure.value if figure else 0.0
            last = now
        begun.append(steps[0])
    done = sum(sum(steps) for steps in grown)
    assert total <= done
    if told:
        assert total == done - sum(begun)
        assert restarts == len(grown) - 1


@given(st.text(alphabet='vlm:_prompt_tokens{}="\\,#+-.0123456789eNaInf \n', max_size=300))
def test_any_reading_can_follow_any_other(text: str) -> None:
    """Whatever an exposition says, what is logged of it are finite numbers."""
    page = Page().engine(0, prompt_tokens=5).text()
    try:
        reading = seen(page + text)
    except ValueError:
        return
    for before in (None, seen(page), reading):
        for figures in observe(before, reading).engines.values():
            for figure in figures.values():
                assert isinstance(figure.value, float | list | dict)
