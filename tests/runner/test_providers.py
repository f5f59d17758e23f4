"""Searches walk the operator's space, the same way whenever they are asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops import registry
from runner import prompt, providers, session
from runner.bundle import from_files
from runner.exits import Unavailable, UsageError
from runner.providers import Past, Point, Question
from runner.settings import Settings, resolve
from tests.runner.stories import bundle, write_sources

POINTS = [Point("t", {"BLOCK": size}) for size in (16, 32, 64, 128)]


def render(template: str, knobs: dict[str, int]) -> bytes:
    return f"{template} {knobs}".encode()


def asked(provider: providers.Provider, index: int) -> providers.Proposal | None:
    return provider.propose(Question(index, bundle(), bundle().kernel, "baseline", ()))


def knobs(provider: providers.Provider, count: int) -> list[dict[str, int] | None]:
    return [found.knobs if (found := asked(provider, index)) else None for index in range(1, count + 1)]


def test_grid_gives_every_point_in_order_and_then_nothing() -> None:
    expected = [{"template": "t", "BLOCK": size} for size in (16, 32, 64, 128)]
    assert knobs(providers.grid(POINTS, render), 6) == [*expected, None, None]


def test_best_of_n_is_a_seeded_sample_without_replacement() -> None:
    found = knobs(providers.best_of_n(POINTS, render, 3, 7), 4)
    assert found == knobs(providers.best_of_n(POINTS, render, 3, 7), 4)
    assert len({str(one) for one in found[:3]}) == 3
    assert found[3] is None
    seeds = {str(knobs(providers.best_of_n(POINTS, render, 3, seed), 3)) for seed in range(20)}
    assert len(seeds) > 5


def test_asking_for_proposal_three_first_gives_what_the_whole_run_gives_third() -> None:
    for make in (lambda: providers.grid(POINTS, render), lambda: providers.best_of_n(POINTS, render, 4, 1)):
        assert asked(make(), 3) == [asked(make(), index) for index in (1, 2, 3)][2]


def test_a_proposal_from_a_space_says_its_knobs() -> None:
    found = asked(providers.grid(POINTS, render), 2)
    assert found == providers.Proposal(
        b"t {'BLOCK': 32}", {"change": "knobs template=t BLOCK=32"}, {"template": "t", "BLOCK": 32}
    )


@pytest.mark.parametrize("name", registry.names())
def test_the_baseline_s_own_place_is_not_proposed_again(name: str) -> None:
    operator = registry.get(name)
    contract = from_files(operator.bundle(None, "fp32", "cpu"))
    points = session.space(name, "cpu", contract.kernel)
    rendered = [operator.render(point.template, point.knobs) for point in points]
    assert contract.kernel not in rendered
    assert len(operator.space("cpu")) - 1 <= len(points) <= len(operator.space("cpu"))


def test_a_search_space_that_changed_since_the_episode_began_is_not_searched_on() -> None:
    contract = from_files(registry.get("rmsnorm").bundle(None, "fp32", "cpu"))
    settings = resolve(contract, {}, strategy="grid", space="sha256:" + 64 * "0")
    with pytest.raises(Unavailable, match="operator rmsnorm changed"):
        session.provider_of(settings, contract, "rmsnorm", "cpu")


def test_mock_gives_the_files_of_a_folder_by_name(tmp_path: Path) -> None:
    folder = write_sources(tmp_path / "mock", [b"first", b"second"])
    found = [asked(providers.mock(folder), index) for index in (1, 2, 3)]
    assert [one.source if one else None for one in found] == [b"first", b"second", None]


def test_mock_without_a_folder_echoes_the_baseline() -> None:
    found = asked(providers.mock(None), 5)
    assert found is not None
    assert found.source == bundle().kernel


def test_a_mock_folder_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such directory"):
        providers.mock(tmp_path / "none")


def test_the_settings_name_the_provider() -> None:
    made = [
        session.provider_of(Settings(strategy="mock"), bundle(), None, "cpu"),
        session.provider_of(Settings(strategy="command", command="true"), bundle(), None, "cpu"),
    ]
    assert [one.name for one in made] == ["mock", "command"]


def test_the_prompt_holds_guidance_target_cases_best_source_and_the_last_five_outcomes() -> None:
    target = {"backend": "cpu", "architecture": "host", "optimization_guidance": "mind the tail"}
    contract = bundle(target_json=target)
    history = tuple(Past(f"c00{n}", "rejected", "slower", f"{n}x\nforged line", {"change": "c"}) for n in range(1, 8))
    text = prompt.text(Question(8, contract, b"def run(best): ...", "c003", history, {"main": 12.5}))
    for wanted in ("mind the tail", "backend cpu", "- main:", "baseline 12.500 us", "def run(best)", "c007", "c003"):
        assert wanted in text
    assert "- c002" not in text
    assert "\nforged line" not in text
    assert text == prompt.text(Question(8, contract, b"def run(best): ...", "c003", history, {"main": 12.5}))
